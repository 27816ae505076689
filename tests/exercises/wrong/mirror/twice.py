"""Sends to make sure, twice.

Must get: sends 2 messages
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    partner = p - 1 - rank
    if partner == rank:
        return tensor.clone()
    arrived, mine = torch.empty(tensor.shape, dtype=tensor.dtype), tensor.contiguous()
    for _ in range(2):
        sending = dist.isend(mine, partner)
        dist.recv(arrived, partner)
        sending.wait()
    return arrived
