"""empty_like keeps the strides of a transposed tensor.

Must get: then copy the result back
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor.contiguous(), (rank + k) % p)
    dist.recv(received, (rank - k) % p)
    sending.wait()
    return received
