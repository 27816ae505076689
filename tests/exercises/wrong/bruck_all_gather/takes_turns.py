"""One rank of each circle receives first, so the others send one after the other.

Must get: in each round every rank sends and receives at the same time
"""

import math

import torch
import torch.distributed as dist


def bruck_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    buffer = torch.zeros((p, *tensor.shape), dtype=tensor.dtype)
    buffer[0] = tensor
    have = 1
    while have < p:
        count = min(have, p - have)
        receives_first = rank < math.gcd(have, p)
        if not receives_first:
            dist.send(buffer[:count], (rank - have) % p)
        dist.recv(buffer[have : have + count], (rank + have) % p)
        if receives_first:
            dist.send(buffer[:count], (rank - have) % p)
        have += count
    return buffer.roll(rank, 0).flatten(0, 1)
