"""Chunks of n // p elements: the rest is left out.

Must get: Only right if the number of ranks divides the size
Must get: left out
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    flat = tensor.contiguous().view(-1)
    length = flat.numel() // p
    chunks = [flat[i * length : (i + 1) * length] for i in range(p)]
    for step in range(p - 1):
        send, add = (rank - step) % p, (rank - step - 1) % p
        arrived = torch.empty_like(chunks[add])
        work = dist.isend(chunks[send], right)
        dist.recv(arrived, left)
        work.wait()
        chunks[add].add_(arrived)
    for step in range(p - 1):
        send, store = (rank + 1 - step) % p, (rank - step) % p
        work = dist.isend(chunks[send], right)
        dist.recv(chunks[store], left)
        work.wait()
    tensor.copy_(flat.view_as(tensor))
