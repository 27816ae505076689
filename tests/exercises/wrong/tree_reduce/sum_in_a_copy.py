"""Adds on a copy, and never writes the sum into the tensor on dst.

Must get: never written into the tensor itself
Must not get: was not added
Must not get: received nothing
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    total = tensor.clone(memory_format=torch.contiguous_format)
    distance = 1
    while distance < p:
        if me % (2 * distance) == distance:
            dist.send(total, (me - distance + dst) % p)
            return
        if me + distance < p:
            got = torch.empty_like(total)
            dist.recv(got, (me + distance + dst) % p)
            total = total + got
        distance *= 2
