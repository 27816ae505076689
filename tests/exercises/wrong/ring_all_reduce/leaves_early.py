"""Rank 0 is done at once.

Must get: rank 0
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        return
    arrived = torch.empty_like(tensor.contiguous())
    work = dist.isend(tensor.contiguous(), (rank + 1) % p)
    dist.recv(arrived, (rank - 1) % p)
    work.wait()
    tensor += arrived
