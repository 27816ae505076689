"""Adds in the second phase too.

Must get: more than once
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(p)
    for step in range(2 * (p - 1)):
        send, add = (rank - step) % p, (rank - step - 1) % p
        arrived = torch.empty_like(chunks[add])
        work = dist.isend(chunks[send], right)
        dist.recv(arrived, left)
        work.wait()
        chunks[add].add_(arrived)
    tensor.copy_(flat.view_as(tensor))
