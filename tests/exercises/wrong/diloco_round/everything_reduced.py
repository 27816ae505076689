"""Averages anchor and momentum too.

Must get: only the parameters differ between ranks; anchor and momentum are the same everywhere
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    p = dist.get_world_size()
    delta = torch.cat([(a - x).flatten() for a, x in zip(anchor, parameters, strict=True)])
    everything = torch.cat([delta, *(a.flatten() for a in anchor), *(m.flatten() for m in momentum)])
    dist.all_reduce(everything)
    delta = everything[: delta.numel()] / p
    parts = delta.split([a.numel() for a in anchor])
    for x, a, m, d in zip(parameters, anchor, momentum, parts, strict=True):
        d = d.view(a.shape)
        m.mul_(beta).add_(d)
        a.sub_(lr * (d + beta * m))
        x.copy_(a)
