"""Blocking sends on all ranks.

Must get: sends before it receives
"""

import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):
    rank, p = dist.get_rank(), dist.get_world_size()
    received = [torch.empty(chunks[rank].shape, dtype=chunks[rank].dtype) for _ in range(p)]
    received[rank].copy_(chunks[rank])
    for step in range(1, p):
        target, source = (rank + step) % p, (rank - step) % p
        dist.send(chunks[target].contiguous(), target)
        dist.recv(received[source], source)
    return received
