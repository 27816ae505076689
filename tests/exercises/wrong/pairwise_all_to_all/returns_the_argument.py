"""Exchanges all, and returns the wrong list.

Must get: or what came of it was not returned
"""

import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):
    rank, p = dist.get_rank(), dist.get_world_size()
    received = [torch.empty_like(chunks[rank].contiguous()) for _ in range(p)]
    received[rank].copy_(chunks[rank])
    for step in range(1, p):
        target, source = (rank + step) % p, (rank - step) % p
        sending = dist.isend(chunks[target].contiguous(), target)
        dist.recv(received[source], source)
        sending.wait()
    return chunks
