"""Each rank subtracts its own maximum, and adds it again behind the sum.

Must get: each rank subtracted its own maximum
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    rank = dist.get_rank()
    rows, w = logits.shape
    top = logits.amax(dim=1)
    local = targets - rank * w
    ok = (local >= 0) & (local < w)
    picked = torch.where(ok, logits[torch.arange(rows), local.clamp(0, w - 1)], torch.zeros((), dtype=logits.dtype))
    total = (logits - top[:, None]).exp().sum(1)
    dist.all_reduce(total)
    dist.all_reduce(picked)
    return total.log() + top - picked
