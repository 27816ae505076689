"""Forgets to divide.

Must get: the differences were summed
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    delta = torch.cat([(a - x).flatten() for a, x in zip(anchor, parameters, strict=True)])
    dist.all_reduce(delta)
    parts = delta.split([a.numel() for a in anchor])
    for x, a, m, d in zip(parameters, anchor, momentum, parts, strict=True):
        d = d.view(a.shape)
        m.mul_(beta).add_(d)
        a.sub_(lr * (d + beta * m))
        x.copy_(a)
