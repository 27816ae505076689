"""The parameters go back to the old anchor.

Must get: the parameters were set to the *old* anchor
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
            x.copy_(a)
            m.copy_(beta * m + delta)
            a.copy_(a - lr * (delta + beta * m))
