"""Puts the anchor itself into the list, and leaves the parameters' tensor as it was.

Must get: copy it into their tensors
"""

import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    flat = torch.cat([(a - x).flatten() for a, x in zip(anchor, parameters, strict=True)])
    dist.all_reduce(flat)
    parts = (flat / dist.get_world_size()).split([a.numel() for a in anchor])
    for i, part in enumerate(parts):
        delta = part.view(anchor[i].shape)
        momentum[i].mul_(beta).add_(delta)
        anchor[i].sub_(lr * (delta + beta * momentum[i]))
        parameters[i] = anchor[i]
