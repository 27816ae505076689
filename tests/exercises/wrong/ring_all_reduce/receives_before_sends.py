"""Every rank receives before it sends.

Must get: each wait to receive
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(p)
    for step in range(2 * (p - 1)):
        reducing = step < p - 1
        send = (rank - step) % p if reducing else (rank + 1 - (step - p + 1)) % p
        arrived = torch.empty_like(chunks[(send - 1) % p])
        dist.recv(arrived, left)
        dist.send(chunks[send], right)
        if reducing:
            chunks[(send - 1) % p].add_(arrived)
        else:
            chunks[(send - 1) % p].copy_(arrived)
    tensor.copy_(flat.view_as(tensor))
