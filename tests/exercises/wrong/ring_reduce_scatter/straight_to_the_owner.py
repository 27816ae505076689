"""Sends each chunk straight to its rank.

Must get: rank 0 sends to rank 2 (line 16), which is not its neighbour on the ring: only ranks 3 and 1 are
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = [chunk.contiguous().clone() for chunk in tensor.tensor_split(p)]
    total = chunks[rank]
    for step in range(1, p):
        incoming = torch.empty_like(total)
        sending = dist.isend(chunks[(rank + step) % p], (rank + step) % p)
        dist.recv(incoming, (rank - step) % p)
        sending.wait()
        total += incoming
    return total
