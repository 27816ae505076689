"""A ring of whole vectors that sends its own data, and adds another buffer than the one that it received into.

Must get: it adds another buffer than the one received into
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    total = torch.zeros_like(tensor)
    outgoing, incoming = tensor.clone(), tensor.clone()
    accumulated = tensor.clone()
    left, right = (rank - 1) % p, (rank + 1) % p
    for i in range(p - 1):
        if i % 2 == 0:
            request = dist.isend(outgoing, right)
            dist.recv(incoming, left)
            accumulated += total
        else:
            request = dist.isend(incoming, right)
            dist.recv(outgoing, left)
            accumulated += tensor
        request.wait()
    tensor.copy_(accumulated)
