"""Multiplies the difference by beta, and not the momentum.

Must get: beta is at the wrong place in the step
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    p, done = dist.get_world_size(), 0
    flat = torch.cat([x.reshape(-1) for x in parameters])
    dist.all_reduce(flat)
    flat /= p
    for x, a, m in zip(parameters, anchor, momentum, strict=True):
        delta = a - flat[done : done + x.numel()].view(x.shape)
        done += x.numel()
        m.copy_(beta * m + delta)
        a -= lr * (beta * delta + m)
        x.copy_(a)
