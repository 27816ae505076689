"""Passes whole vectors.

Must get: whole vectors
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    outgoing = tensor.contiguous().clone()
    total = outgoing.clone()
    for _ in range(p - 1):
        incoming = torch.empty_like(outgoing)
        sending = dist.isend(outgoing, (rank + 1) % p)
        dist.recv(incoming, (rank - 1) % p)
        sending.wait()
        total += incoming
        outgoing = incoming
    return total.tensor_split(p)[rank]
