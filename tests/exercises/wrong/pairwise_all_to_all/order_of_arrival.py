"""Appends what comes.

Must get: each rank's own piece stands first, then those of the ranks
"""

import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):
    rank, p = dist.get_rank(), dist.get_world_size()
    received = [torch.empty(chunks[rank].shape, dtype=chunks[rank].dtype) for _ in range(p)]
    received[rank].copy_(chunks[rank])
    for step in range(1, p):
        target, source = (rank + step) % p, (rank - step) % p
        sending = dist.isend(chunks[target].contiguous(), target)
        dist.recv(received[source], source)
        sending.wait()
    return [received[(rank - step) % p] for step in range(p)]
