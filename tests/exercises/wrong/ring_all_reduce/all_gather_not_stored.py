"""The all-gather half receives, and stores nothing.

Must get: or what it brings is not stored
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(p)
    for step in range(p - 1):
        send, add = (rank - step) % p, (rank - step - 1) % p
        arrived = torch.empty_like(chunks[add])
        sending = dist.isend(chunks[send], right)
        dist.recv(arrived, left)
        sending.wait()
        chunks[add].add_(arrived)
    for step in range(p - 1):
        send, store = (rank + 1 - step) % p, (rank - step) % p
        arrived = torch.empty_like(chunks[store])
        sending = dist.isend(chunks[send], right)
        dist.recv(arrived, left)
        sending.wait()
    tensor.copy_(flat.view_as(tensor))
