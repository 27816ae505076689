"""Stops one piece too early.

Must get: last piece is missing
"""

import torch
import torch.distributed as dist


def async_tp_linear(x, multiply):
    rank, p = dist.get_rank(), dist.get_world_size()
    piece, products = x.contiguous(), [None] * p
    for step in range(max(p - 1, 1)):
        coming, works = torch.empty_like(piece), []
        if step < p - 2:
            ops = [
                dist.P2POp(dist.isend, piece, (rank + 1) % p),
                dist.P2POp(dist.irecv, coming, (rank - 1) % p),
            ]
            works = dist.batch_isend_irecv(ops)
        products[(rank - step) % p] = multiply(piece)
        for work in works:
            work.wait()
        piece = coming
    empty = torch.zeros_like(products[rank])
    products = [empty if product is None else product for product in products]
    return torch.cat(products)
