"""torch.chunk may make fewer than p chunks.

Must get: IndexError: list index out of range. Pieces of ceil(size / p) elements, as torch.chunk makes them, can be fewer than p: 1 element gives 1 piece, but p is 2. torch.tensor_split always makes as many pieces as you ask for.
Must not get: Take the peer's number modulo the number of ranks
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    chunks = list(flat.chunk(p))
    for step in range(2 * p - 2):
        out, into = (rank - step) % p, (rank - step - 1) % p
        sending = dist.isend(chunks[out], (rank + 1) % p)
        received = torch.empty_like(chunks[into])
        dist.recv(received, (rank - 1) % p)
        sending.wait()
        chunks[into].copy_(chunks[into] + received if step < p - 1 else received)
    tensor.copy_(flat.view_as(tensor))
