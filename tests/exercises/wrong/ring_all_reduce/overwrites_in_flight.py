"""Adds to a chunk whose isend is still on its way.

Must get: wait
Must get: changed
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(p)
    outgoing = torch.empty(-(-flat.numel() // p), dtype=tensor.dtype)
    works = []
    for step in range(2 * (p - 1)):
        reducing = step < p - 1
        send = (rank - step) % p if reducing else (rank + 1 - (step - p + 1)) % p
        take = (send - 1) % p
        message = outgoing[: chunks[send].numel()]
        message.copy_(chunks[send])
        works.append(dist.isend(message, right))
        arrived = torch.empty_like(chunks[take])
        dist.recv(arrived, left)
        if reducing:
            chunks[take].add_(arrived)
        else:
            chunks[take].copy_(arrived)
    for work in works:
        work.wait()
    tensor.copy_(flat.view_as(tensor))
