"""Takes the exponentials as they are.

Must get: not stable
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    width = logits.shape[1]
    shifted = logits
    local = targets - dist.get_rank() * width
    here = (local >= 0) & (local < width)
    chosen = shifted.gather(1, local.clamp(0, width - 1)[:, None])[:, 0]
    both = torch.stack([shifted.exp().sum(dim=1), torch.where(here, chosen, 0.0)])
    dist.all_reduce(both)
    return both[0].log() - both[1]
