"""Sends with send before it receives.

Must get: wait
"""

import torch
import torch.distributed as dist


def async_tp_linear(x, multiply):
    rank, p = dist.get_rank(), dist.get_world_size()
    piece, products = x.contiguous(), [None] * p
    for step in range(p):
        coming, works = torch.empty_like(piece), []
        if step < p - 1:
            dist.send(piece, (rank + 1) % p)
            dist.recv(coming, (rank - 1) % p)
        products[(rank - step) % p] = multiply(piece)
        for work in works:
            work.wait()
        piece = coming
    return torch.cat(products)
