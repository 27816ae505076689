"""torch.chunk may make fewer than p chunks.

Must get: raised IndexError
Must get: can be fewer than p: 1 row gives 1 piece, but p is 2
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = [c.clone() for c in tensor.chunk(p)]
    for step in range(p - 1):
        out, into = (rank - step - 1) % p, (rank - step - 2) % p
        sending = dist.isend(chunks[out].contiguous(), (rank + 1) % p)
        received = torch.empty_like(chunks[into]).contiguous()
        dist.recv(received, (rank - 1) % p)
        sending.wait()
        chunks[into] += received
    return chunks[rank]
