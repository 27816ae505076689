"""Hands a view with gaps to send, as gloo and NCCL would refuse it.

Must get: call .contiguous() first
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    received = torch.empty(tensor.shape, dtype=tensor.dtype)
    sending = dist.isend(tensor, (rank + k) % p)
    dist.recv(received, (rank - k) % p)
    sending.wait()
    return received
