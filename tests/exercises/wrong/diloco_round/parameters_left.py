"""Leaves the parameters where they were.

Must get: the parameters are not set to the new anchor
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    p = dist.get_world_size()
    delta = torch.cat([(a - x).flatten() for a, x in zip(anchor, parameters, strict=True)])
    dist.all_reduce(delta)
    delta /= p
    parts = delta.split([a.numel() for a in anchor])
    for a, m, d in zip(anchor, momentum, parts, strict=True):
        d = d.view(a.shape)
        m.mul_(beta).add_(d)
        a.sub_(lr * (d + beta * m))
