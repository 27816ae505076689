"""Forgets to divide.

Must get: the change of each element is p times the right one on every rank
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in parameters])
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    length = -(-weights.numel() // p)
    padding = length * p - weights.numel()
    gradient = torch.nn.functional.pad(gradient, (0, padding))
    weights = torch.nn.functional.pad(weights, (0, padding))
    shard = torch.empty(length, dtype=weights.dtype)
    dist.reduce_scatter_tensor(shard, gradient)
    mine = weights[rank * length : (rank + 1) * length] - lr * shard
    dist.all_gather_into_tensor(weights, mine)
    offset = 0
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(weights[offset : offset + parameter.numel()].view_as(parameter))
            offset += parameter.numel()
