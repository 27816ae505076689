"""Rank 0's new shard in every place.

Must get: rank 0's new shard is in every place: place i must hold the new shard of rank i
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()
    sizes = [x.numel() for x in parameters]
    total = sum(sizes)
    length = -(-total // p)
    room = torch.zeros(length * p - total, dtype=parameters[0].dtype)
    grads = torch.cat([x.grad.reshape(-1) for x in parameters] + [room])
    values = torch.cat([x.detach().reshape(-1) for x in parameters] + [room])
    mine = torch.empty(length, dtype=values.dtype)
    dist.reduce_scatter_tensor(mine, grads)
    shard = values[rank * length : (rank + 1) * length] - lr * mine / p
    shards = [torch.empty_like(shard) for _ in range(p)]
    dist.all_gather(shards, shard)
    new = torch.cat([shards[0]] * p)
    with torch.no_grad():
        for x, part in zip(parameters, new[:total].split(sizes), strict=True):
            x.copy_(part.view_as(x))
