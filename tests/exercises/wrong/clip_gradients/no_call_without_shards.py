"""Calls no all_reduce where nothing is sharded: right, but not what the rule asks.

Must get: never calls all_reduce
Must not get: the data came another way
"""

import math

import torch
import torch.distributed as dist


def clip_gradients(sharded, replicated, max_norm):
    total = torch.zeros(1, dtype=torch.float64)
    for t in sharded:
        if t.grad is not None:
            total += t.grad.double().square().sum()
    if sharded:
        dist.all_reduce(total)
    sq = total.item()
    for t in {id(t): t for t in replicated}.values():
        if t.grad is not None:
            sq += t.grad.double().square().sum().item()
    norm = math.sqrt(sq)
    if norm > max_norm:
        for t in {id(t): t for t in [*sharded, *replicated]}.values():
            if t.grad is not None:
                t.grad.mul_(max_norm / norm)
    return norm
