"""Receives only.

Must get: if there is no send to the rank that waits, it is missing
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    out = torch.empty(tensor.shape, dtype=tensor.dtype)
    dist.recv(out, (rank - k) % p)
    return out
