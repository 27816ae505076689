"""Cuts parameters that require grad, and receives into the parts.

Must get: take parameter.detach()
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()

    def flat_shards(tensors):
        flat = torch.cat([t.flatten() for t in tensors])
        length = -(-flat.numel() // p)
        padded = torch.nn.functional.pad(flat, (0, p * length - flat.numel()))
        return list(padded.split(length))

    gradient, weights = flat_shards([x.grad for x in parameters]), flat_shards(parameters)
    total = torch.empty_like(gradient[rank])
    dist.reduce_scatter(total, gradient)
    mine = weights[rank] - lr * total / p
    dist.all_gather(weights, mine)
    new = torch.cat(weights)
    for x in parameters:
        x.data.copy_(new[: x.numel()].view_as(x))
        new = new[x.numel() :]
