"""Sets the momentum to the difference.

Must get: the old momentum is not used
Must get: parameters[0] on rank 0
Must not get: of the list
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
        m.copy_(delta)
        a -= lr * (delta + beta * m)
        x.copy_(a)
