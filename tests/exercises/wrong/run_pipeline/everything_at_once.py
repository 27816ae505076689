"""One message with the whole batch: the next stage can't begin before all of it is there.

Must get: bytes at once
"""

import torch.distributed as dist


def run_pipeline(batch, upstream, weight, order):
    rank, p = dist.get_rank(), dist.get_world_size()
    x, g = (
        batch.contiguous().clone(),
        upstream.clone(),
    )
    if rank > 0:
        dist.recv(x, rank - 1)
    if rank < p - 1:
        dist.send(x * weight, rank + 1)
        dist.recv(g, rank + 1)
    if rank > 0:
        dist.send(g * weight, rank - 1)
    return (x * g).sum(0)
