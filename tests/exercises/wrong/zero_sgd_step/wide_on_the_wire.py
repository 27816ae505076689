"""Gradients and parameters travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: are enough
"""

import torch
import torch.distributed as dist


@torch.no_grad()
def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()
    for parameter in parameters:
        flat, grad = parameter.reshape(-1), parameter.grad.reshape(-1)
        length = -(-flat.numel() // p)
        padded = torch.zeros(p * length, dtype=torch.float64)
        padded[: grad.numel()] = grad
        own = torch.zeros(p * length, dtype=torch.float64)
        own[: flat.numel()] = flat
        shard = torch.zeros(length, dtype=torch.float64)
        dist.reduce_scatter(shard, list(padded.chunk(p)))
        updated = own.chunk(p)[rank] - lr * (shard / p)
        gathered = [torch.zeros(length, dtype=torch.float64) for _ in range(p)]
        dist.all_gather(gathered, updated)
        parameter.copy_(torch.cat(gathered)[: flat.numel()].view(parameter.shape))
