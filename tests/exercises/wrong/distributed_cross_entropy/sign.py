"""The likelihood instead of the loss.

Must get: the sign is wrong
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
    both = torch.stack([shifted.exp().sum(dim=1), torch.where(here, chosen, 0.0)])
    dist.all_reduce(both)
    return both[1] - both[0].log()
