"""A chain that stops one rank before dst.

Must get: dst received nothing
Must not get: was not added
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    if me == 0:
        return
    total = tensor.clone(memory_format=torch.contiguous_format)
    if me < p - 1:
        incoming = torch.empty_like(total)
        dist.recv(incoming, (rank + 1) % p)
        total += incoming
    if me > 1:
        dist.send(total, (rank - 1) % p)
