"""As it was.

Must get: sends before it receives
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    partner = p - 1 - rank
    if partner == rank:
        return tensor.clone()
    arrived = torch.empty(tensor.shape, dtype=tensor.dtype)
    dist.send(tensor.contiguous(), partner)
    dist.recv(arrived, partner)
    return arrived
