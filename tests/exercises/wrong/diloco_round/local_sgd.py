"""Averages the parameters and stops.

Must get: that is local SGD
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    p = dist.get_world_size()
    delta = torch.cat([(a - x).flatten() for a, x in zip(anchor, parameters, strict=True)])
    dist.all_reduce(delta)
    delta /= p
    parts = delta.split([a.numel() for a in anchor])
    for x, a, d in zip(parameters, anchor, parts, strict=True):
        d = d.view(a.shape)
        a.sub_(d)
        x.copy_(a)
