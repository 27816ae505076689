"""Starts with rank 1's tensor.

Must get: off by one place
"""

import torch
import torch.distributed as dist


def ring_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = [torch.empty(tensor.shape, dtype=tensor.dtype) for _ in range(p)]
    parts[rank].copy_(tensor)
    for step in range(p - 1):
        send, store = (rank - step) % p, (rank - step - 1) % p
        sending = dist.isend(parts[send], (rank + 1) % p)
        dist.recv(parts[store], (rank - 1) % p)
        sending.wait()
    return torch.cat(parts[1:] + parts[:1])
