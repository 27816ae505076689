"""Ends when the distance is more than half of p: one round too early, if p is no power of two.

Must get: the last round is missing
Must not get: it was not added
"""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    window = tensor.clone(memory_format=torch.contiguous_format)
    below = torch.zeros_like(window)
    distance = 1
    while 2 * distance <= p:
        ops, arrived = [], torch.zeros_like(window)
        if rank + distance < p:
            ops.append(dist.P2POp(dist.isend, window, (rank + distance) % p))
        if rank >= distance:
            ops.append(dist.P2POp(dist.irecv, arrived, (rank - distance) % p))
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        below, window = below + arrived, window + arrived
        distance *= 2
    return below
