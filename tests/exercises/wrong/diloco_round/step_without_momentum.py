"""Momentum is updated, and not used.

Must get: the step does not use it
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    p = dist.get_world_size()
    flat = torch.cat([x.detach().reshape(-1) for x in parameters])
    dist.all_reduce(flat)
    flat /= p
    with torch.no_grad():
        at = 0
        for x, a, m in zip(parameters, anchor, momentum, strict=False):
            mean = flat[at : at + x.numel()].view(x.shape)
            at += x.numel()
            delta = a - mean
            m.copy_(beta * m + delta)
            a.copy_(a - lr * delta)
            x.copy_(a)
