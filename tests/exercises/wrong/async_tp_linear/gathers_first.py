"""Receives everything, then multiplies once.

Must get: everything is received before the first row is multiplied
"""

import torch
import torch.distributed as dist


def async_tp_linear(x, multiply):
    rank, p = dist.get_rank(), dist.get_world_size()
    rows = [torch.empty_like(x.contiguous()) for _ in range(p)]
    rows[rank].copy_(x)
    for step in range(p - 1):
        sent, came = rows[(rank - step) % p], rows[(rank - step - 1) % p]
        ops = [dist.P2POp(dist.isend, sent, (rank + 1) % p), dist.P2POp(dist.irecv, came, (rank - 1) % p)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    return multiply(torch.cat(rows))
