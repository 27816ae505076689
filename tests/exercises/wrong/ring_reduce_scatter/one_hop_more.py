"""Ends with the next rank's chunk and passes it on.

Must get: rank 0 sends 8 bytes, too many
Must not get: whole vectors
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.clone(memory_format=torch.contiguous_format).tensor_split(p)
    if p == 1:
        return chunks[0]
    for step in range(p):
        out, into = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        received = torch.empty_like(into)
        sending = dist.isend(out, (rank + 1) % p)
        dist.recv(received, (rank - 1) % p)
        sending.wait()
        if step < p - 1:
            into.add_(received)
    return received
