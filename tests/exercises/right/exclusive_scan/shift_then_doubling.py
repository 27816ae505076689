"""Shifts by one first, then adds at distances 1, 2, 4 ... (Hillis and Steele)."""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = tensor.contiguous()

    def from_below(values, distance):
        arrived = torch.zeros_like(mine)
        ops = []
        if rank + distance < p:
            ops.append(dist.P2POp(dist.isend, values, rank + distance))
        if rank >= distance:
            ops.append(dist.P2POp(dist.irecv, arrived, rank - distance))
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        return arrived

    total, distance = from_below(mine, 1), 1
    while distance < p - 1:
        total = total + from_below(total, distance)
        distance *= 2
    return total
