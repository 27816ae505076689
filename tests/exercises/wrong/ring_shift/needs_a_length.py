"""Makes the tensor for what arrives from a length, and so has none for a tensor without dimensions.

Must get: a tensor without dimensions
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    received = torch.empty((len(tensor), *tensor.shape[1:]), dtype=tensor.dtype)
    sending = dist.isend(tensor.contiguous(), (rank + k) % p)
    dist.recv(received, (rank - k) % p)
    sending.wait()
    return received
