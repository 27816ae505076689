"""Ignores k.

Must get: shifted by 1, whatever k is
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k == 0 or p == 1:
        return tensor.clone()
    received = torch.empty(tensor.shape, dtype=tensor.dtype)
    sending = dist.isend(tensor.contiguous(), (rank + 1) % p)
    dist.recv(received, (rank - 1) % p)
    sending.wait()
    return received
