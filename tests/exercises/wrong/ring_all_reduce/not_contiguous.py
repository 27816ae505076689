"""A view of a copy: right for contiguous tensors only.

Must get: non-contiguous
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    chunks = tensor.reshape(-1).tensor_split(p)
    for step in range(2 * (p - 1)):
        reducing = step < p - 1
        send = (rank - step) % p if reducing else (rank + 1 - (step - p + 1)) % p
        take = (send - 1) % p
        arrived = torch.empty(chunks[take].shape, dtype=tensor.dtype)
        work = dist.isend(chunks[send].clone(), right)
        dist.recv(arrived, left)
        work.wait()
        chunks[take].copy_(chunks[take] + arrived if reducing else arrived)
