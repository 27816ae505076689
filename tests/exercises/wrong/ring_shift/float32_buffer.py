"""Receives into torch.empty(n): always float32.

Must get: expected 6 float32
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    received = torch.empty(tensor.shape)
    sending = dist.isend(tensor.contiguous(), (rank + k) % p)
    dist.recv(received, (rank - k) % p)
    sending.wait()
    return received
