import math

import torch
import torch.distributed as dist


def squares(parameters):
    seen, total = [], 0.0
    for p in parameters:
        if p.grad is not None and not any(p is other for other in seen):
            seen.append(p)
            total += (p.grad.double() ** 2).sum().item()
    return seen, total


def clip_gradients(sharded, replicated, max_norm):
    """The replicated gradients are added after the sum, on every rank."""
    parts, own = squares(sharded)
    whole, shared = squares(replicated)
    box = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(box)
    norm = math.sqrt(box.item() + shared)
    if norm > max_norm:
        for p in parts + whole:
            p.grad = (p.grad.double() * (max_norm / norm)).to(p.grad.dtype)
    return norm
