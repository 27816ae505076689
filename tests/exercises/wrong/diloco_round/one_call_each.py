"""An all_reduce for each tensor.

Must get: then one is enough
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    p = dist.get_world_size()
    delta = torch.cat([(a - x).flatten() for a, x in zip(anchor, parameters, strict=True)])
    parts = list(delta.split([a.numel() for a in anchor]))
    for i, part in enumerate(parts):
        part = part.clone()
        dist.all_reduce(part)
        parts[i] = part / p
    for x, a, m, d in zip(parameters, anchor, momentum, parts, strict=True):
        d = d.view(a.shape)
        m.mul_(beta).add_(d)
        a.sub_(lr * (d + beta * m))
        x.copy_(a)
