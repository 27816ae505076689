"""Steps with its own difference, and averages the anchors that come of it.

Must get: momentum took in this rank's own difference
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    for x, a, m in zip(parameters, anchor, momentum, strict=True):
        delta = a - x
        m.mul_(beta).add_(delta)
        a.sub_(lr * (delta + beta * m))
    flat = torch.cat([a.flatten() for a in anchor])
    dist.all_reduce(flat)
    parts = (flat / dist.get_world_size()).split([a.numel() for a in anchor])
    for x, a, part in zip(parameters, anchor, parts, strict=True):
        a.copy_(part.view(a.shape))
        x.copy_(a)
