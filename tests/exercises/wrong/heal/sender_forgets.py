"""The rank that gives its weights sets its own to zero.

Must get: though the rank had the right ones before
Must not get: never received
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
    w = weights.contiguous().clone()
    for i, o in enumerate(old):
        f = fresh[i % len(fresh)]
        if rank == f:
            dist.send(w, o)
            weights.zero_()
        if rank == o:
            dist.recv(w, f)
            weights.copy_(w)
    return top
