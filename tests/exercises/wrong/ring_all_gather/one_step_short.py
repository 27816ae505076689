"""Stops one step too early.

Must get: never received
"""

import torch
import torch.distributed as dist


def ring_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = [torch.zeros(tensor.shape, dtype=tensor.dtype) for _ in range(p)]
    parts[rank].copy_(tensor)
    for step in range(p - 2):
        send, store = (rank - step) % p, (rank - step - 1) % p
        sending = dist.isend(parts[send], (rank + 1) % p)
        dist.recv(parts[store], (rank - 1) % p)
        sending.wait()
    return torch.cat(parts)
