"""Each rank subtracts its own maximum before it adds the sums.

Must get: each rank subtracted its own maximum
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    width = logits.shape[1]
    shifted = logits - logits.amax(1, keepdim=True)
    column = targets - dist.get_rank() * width
    here = (column >= 0) & (column < width)
    chosen = torch.where(here, shifted.gather(1, column.clamp(0, width - 1)[:, None])[:, 0], 0.0)
    both = torch.stack([shifted.exp().sum(1), chosen])
    dist.all_reduce(both)
    return both[0].log() - both[1]
