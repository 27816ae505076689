"""Every rank adds the logit that its clamped index points at.

Must get: only the rank that holds its column must add it
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    width = logits.shape[1]
    top = logits.amax(dim=1).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    shifted = logits - top[:, None]
    local = targets - dist.get_rank() * width
    chosen = shifted.gather(1, local.clamp(0, width - 1)[:, None])[:, 0]
    both = torch.stack([shifted.exp().sum(dim=1), chosen])
    dist.all_reduce(both)
    return both[0].log() - both[1]
