"""Takes its neighbour for its mirror image.

Must get: shifted by one place
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty(tensor.shape, dtype=tensor.dtype)
    sending = dist.isend(tensor.contiguous(), (rank + 1) % p)
    dist.recv(arrived, (rank - 1) % p)
    sending.wait()
    return arrived
