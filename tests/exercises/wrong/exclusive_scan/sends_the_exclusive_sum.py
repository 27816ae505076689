"""Sends the sum without its own tensor.

Must get: no message brought it to rank 1
Must not get: still zero
"""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    below = torch.zeros_like(tensor, memory_format=torch.contiguous_format)
    distance = 1
    while distance < p:
        ops, arrived = [], torch.zeros_like(below)
        if rank + distance < p:
            ops.append(dist.P2POp(dist.isend, below.clone(), rank + distance))
        if rank - distance >= 0:
            ops.append(dist.P2POp(dist.irecv, arrived, rank - distance))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        below += arrived
        distance *= 2
    return below
