"""Receives into a list of one and the same tensor.

Must get: writes into the buffer of its isend
"""

import torch
import torch.distributed as dist


def ring_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    mine = tensor.contiguous()
    parts = [torch.empty_like(mine)] * p
    parts[rank] = mine
    for step in range(p - 1):
        sending = dist.isend(parts[(rank - step) % p], right)
        dist.recv(parts[(rank - step - 1) % p], left)
        sending.wait()
    return torch.cat(parts)
