"""Takes the parameters flat with view.

Must get: only wrong with a transposed
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    p, done = dist.get_world_size(), 0
    flat = torch.cat([x.view(-1) for x in parameters])
    dist.all_reduce(flat)
    flat /= p
    for x, a, m in zip(parameters, anchor, momentum, strict=True):
        delta = a - flat[done : done + x.numel()].view(x.shape)
        done += x.numel()
        m.copy_(beta * m + delta)
        a -= lr * (delta + beta * m)
        x.copy_(a)
