"""Chunks of n // p.

Must get: divides the number of rows
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = [
        chunk.contiguous().clone()
        for chunk in (tensor[i * (len(tensor) // p) : (i + 1) * (len(tensor) // p)] for i in range(p))
    ]
    for step in range(p - 1):
        send, add = (rank - step - 1) % p, (rank - step - 2) % p
        incoming = torch.empty_like(chunks[add])
        sending = dist.isend(chunks[send], (rank + 1) % p)
        dist.recv(incoming, (rank - 1) % p)
        sending.wait()
        chunks[add] += incoming
    return chunks[rank]
