"""Cuts parameters that require grad, and receives into new memory."""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()
    weights = torch.cat([x.reshape(-1) for x in parameters])
    grads = torch.cat([x.grad.reshape(-1) for x in parameters])
    length = -(-len(weights) // p)
    padding = p * length - len(weights)
    weights = torch.nn.functional.pad(weights, (0, padding))
    grads = torch.nn.functional.pad(grads, (0, padding))
    mean = torch.empty(length, dtype=grads.dtype)
    dist.reduce_scatter(mean, list(grads.split(length)))
    shard = weights[rank * length : (rank + 1) * length] - lr * mean / p
    new = torch.empty_like(grads)
    dist.all_gather(list(new.split(length)), shard)
    at = 0
    for x in parameters:
        x.data.copy_(new[at : at + x.numel()].view_as(x))
        at += x.numel()
