"""The rates exchanged.

Must get: the rates were exchanged
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, beta, lr):
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
            a.copy_(a - lr * (delta + beta * m))
            x.copy_(a)
