"""Returns 0 where no rank is behind.

Must get: 0 came back where no rank is behind
Must not get: whole multiple
"""

import torch
import torch.distributed as dist


def heal(weights, step):
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = torch.empty(p, dtype=torch.int64)
    dist.all_gather_into_tensor(steps, torch.tensor([step]))
    s = steps.tolist()
    top = max(s)
    fresh = [r for r in range(p) if s[r] == top]
    old = [r for r in range(p) if s[r] < top]
    if not old:
        return 0
    w = weights.contiguous()
    for i, o in enumerate(old):
        f = fresh[i % len(fresh)]
        if rank == f:
            dist.send(w, o)
        if rank == o:
            dist.recv(w, f)
            weights.copy_(w)
    return top
