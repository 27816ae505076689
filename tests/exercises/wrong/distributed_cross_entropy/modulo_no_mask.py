"""Every rank adds the logit at the target modulo its own width.

Must get: only the rank that holds its column must add it
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    width = logits.shape[1]
    top = logits.amax(dim=1).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    shifted = logits - top[:, None]
    chosen = shifted.gather(1, (targets % width)[:, None])[:, 0]
    both = torch.stack([shifted.exp().sum(dim=1), chosen])
    dist.all_reduce(both)
    return both[0].log() - both[1]
