"""Never waits for its send.

Must get: never waited
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    partner = p - 1 - rank
    if partner == rank:
        return tensor.clone()
    arrived = torch.empty(tensor.shape, dtype=tensor.dtype)
    dist.isend(tensor.contiguous(), partner)
    dist.recv(arrived, partner)
    return arrived
