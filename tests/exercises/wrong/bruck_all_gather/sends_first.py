"""Blocking sends on all ranks.

Must get: sends before it receives
"""

import torch
import torch.distributed as dist


def bruck_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    buffer = torch.zeros((p, *tensor.shape), dtype=tensor.dtype)
    buffer[0] = tensor
    have = 1
    while have < p:
        count = min(have, p - have)
        dist.send(buffer[:count], (rank - have) % p)
        dist.recv(buffer[have : have + count], (rank + have) % p)
        have += count
    return buffer.roll(rank, 0).flatten(0, 1)
