"""Divides the gradients before the reduce_scatter, and its result.

Must get: the change of each element is 1/p times the right one on every rank
Must not get: AVG
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()
    sizes = [w.numel() for w in parameters]
    n = sum(sizes)
    shard = -(-n // p)
    dtype = parameters[0].dtype
    weights = torch.zeros(shard * p, dtype=dtype)
    grads = torch.zeros(shard * p, dtype=dtype)
    weights[:n] = torch.cat([w.detach().reshape(-1) for w in parameters])
    grads[:n] = torch.cat([w.grad.reshape(-1) / p for w in parameters])
    mine = torch.empty(shard, dtype=dtype)
    dist.reduce_scatter(mine, list(grads.split(shard)) if shard else [grads] * p)
    new = weights[rank * shard : (rank + 1) * shard] - lr * mine / p
    parts = [torch.empty(shard, dtype=dtype) for _ in range(p)]
    dist.all_gather(parts, new)
    flat = torch.cat(parts)[:n]
    for w, piece in zip(parameters, flat.split(sizes), strict=False):
        w.detach().copy_(piece.view(w.shape))
