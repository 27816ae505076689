"""Multiplies the difference by lr at once, and so puts the rate into momentum.

Must get: the difference was multiplied by lr before it went into momentum
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    flat = torch.cat([(a - x).flatten() for a, x in zip(anchor, parameters, strict=True)])
    dist.all_reduce(flat)
    parts = (lr * flat / dist.get_world_size()).split([a.numel() for a in anchor])
    for x, a, m, part in zip(parameters, anchor, momentum, parts, strict=True):
        step = part.view(a.shape)
        m.mul_(beta).add_(step)
        a.sub_(step + beta * m)
        x.copy_(a)
