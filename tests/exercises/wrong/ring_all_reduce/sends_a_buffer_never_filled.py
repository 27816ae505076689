"""A ring of whole vectors whose send buffer is made with zeros and never filled, and that adds another buffer.

Must get: the buffer was never filled
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    total = torch.zeros_like(tensor)
    outgoing, incoming = torch.zeros_like(tensor), torch.zeros_like(tensor)
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
