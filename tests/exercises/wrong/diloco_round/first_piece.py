"""Forgets to move on in the flat vector.

Must get: every tensor took its mean from the beginning of the flat vector
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
        m.copy_(beta * m + delta)
        a -= lr * (delta + beta * m)
        x.copy_(a)
