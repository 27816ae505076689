"""Distances 1, 2 and 4 only, as if there were at most 8 ranks.

Must get: Only right for at most 8 ranks
"""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    r, p = dist.get_rank(), dist.get_world_size()
    run = tensor.contiguous().clone()
    out = torch.zeros_like(run)
    for d in (1, 2, 4):
        ops = []
        box = torch.zeros_like(run)
        if r + d < p:
            ops.append(dist.P2POp(dist.isend, run.clone(), r + d))
        if r >= d:
            ops.append(dist.P2POp(dist.irecv, box, r - d))
        for w in dist.batch_isend_irecv(ops) if ops else []:
            w.wait()
        out, run = out + box, run + box
    return out
