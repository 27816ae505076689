"""Rank after rank.

Must get: rounds
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    total = tensor.contiguous().clone()
    if me < p - 1:
        incoming = torch.empty_like(total)
        dist.recv(incoming, (rank + 1) % p)
        total += incoming
    if me:
        dist.send(total, (rank - 1) % p)
    else:
        tensor.copy_(total)
