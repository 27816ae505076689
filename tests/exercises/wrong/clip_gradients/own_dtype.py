"""The squares are in the gradients' own dtype.

Must get: overflow
"""

import torch
import torch.distributed as dist


def squares(parameters):
    total = torch.zeros(())
    for p in parameters:
        if p.grad is not None:
            total = total + p.grad.square().sum().float()
    return total


def clip_gradients(sharded, replicated, max_norm):
    rank = dist.get_rank()
    replicated = list({id(q): q for q in replicated}.values())
    total = squares(sharded) + (squares(replicated) if rank == 0 else 0)
    dist.all_reduce(total)
    norm = total.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for q in [*sharded, *replicated]:
        if q.grad is not None:
            q.grad.copy_(q.grad * factor)
    return norm
