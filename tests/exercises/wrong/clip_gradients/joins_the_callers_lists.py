"""Appends the replicated parameters to the list of the sharded ones.

Must get: the items of an argument were changed
Must get: the items of sharded
"""

import math

import torch
import torch.distributed as dist


def squares(parameters):
    return sum((p.grad.double().square().sum() for p in parameters if p.grad is not None), torch.zeros(()).double())


def clip_gradients(sharded, replicated, max_norm):
    total = squares(sharded).reshape(1)
    dist.all_reduce(total)
    once = list({id(p): p for p in replicated}.values())
    norm = math.sqrt(total.item() + squares(once).item())
    sharded += once
    if norm > max_norm:
        for parameter in sharded:
            if parameter.grad is not None:
                parameter.grad.mul_(max_norm / norm)
    return norm
