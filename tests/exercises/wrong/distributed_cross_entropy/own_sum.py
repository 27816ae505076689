"""Sums the exponentials of its own columns only.

Must get: add it over all ranks
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    width = logits.shape[1]
    top = logits.amax(dim=1).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    shifted = logits - top[:, None]
    local = targets - dist.get_rank() * width
    here = (local >= 0) & (local < width)
    chosen = shifted.gather(1, local.clamp(0, width - 1)[:, None])[:, 0]
    chosen = torch.where(here, chosen, 0.0)
    dist.all_reduce(chosen)
    return shifted.exp().sum(dim=1).log() - chosen
