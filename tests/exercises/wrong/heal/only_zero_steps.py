"""Returns 0 on every rank.

Must get: 0 came back
"""

import torch
import torch.distributed as dist


def heal(weights, step):
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = torch.zeros(p, dtype=torch.int64)
    dist.all_gather_into_tensor(steps, torch.tensor([step]))
    s = steps.tolist()
    top = max(s)
    fresh = [r for r in range(p) if s[r] == top]
    old = [r for r in range(p) if s[r] < top]
    w = weights.contiguous()
    ops = []
    for i, o in enumerate(old):
        f = fresh[i % len(fresh)]
        if rank == f:
            ops.append(dist.P2POp(dist.isend, w, o))
        if rank == o:
            ops.append(dist.P2POp(dist.irecv, w, f))
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    if rank in old:
        weights.copy_(w)
    return 0
