"""Takes the step with its own difference.

Must get: each rank took the step with its own difference
"""

import torch


def diloco_round(parameters, anchor, momentum, lr, beta):
    delta = torch.cat([(a - x).flatten() for a, x in zip(anchor, parameters, strict=True)])
    parts = delta.split([a.numel() for a in anchor])
    for x, a, m, d in zip(parameters, anchor, momentum, parts, strict=True):
        d = d.view(a.shape)
        m.mul_(beta).add_(d)
        a.sub_(lr * (d + beta * m))
        x.copy_(a)
