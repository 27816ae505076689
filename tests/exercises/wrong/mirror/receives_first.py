"""The other way round.

Must get: none of them has sent
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    partner = p - 1 - rank
    if partner == rank:
        return tensor.clone()
    arrived = torch.empty(tensor.shape, dtype=tensor.dtype)
    dist.recv(arrived, partner)
    dist.send(tensor.contiguous(), partner)
    return arrived
