"""Rank after rank.

Must get: rounds
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p
    buffer = tensor.contiguous()
    if me:
        dist.recv(buffer, (rank - 1) % p)
        tensor.copy_(buffer)
    if me < p - 1:
        dist.send(buffer, (rank + 1) % p)
