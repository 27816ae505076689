"""Pads each tensor to the largest.

Must get: put them one behind the other, without padding
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    p, done = dist.get_world_size(), 0
    most = max(x.numel() for x in parameters)
    flat = torch.stack([torch.nn.functional.pad(x.reshape(-1), (0, most - x.numel())) for x in parameters])
    dist.all_reduce(flat)
    flat /= p
    for x, a, m in zip(parameters, anchor, momentum, strict=True):
        delta = a - flat[done, : x.numel()].view(x.shape)
        done += 1
        m.copy_(beta * m + delta)
        a -= lr * (delta + beta * m)
        x.copy_(a)
