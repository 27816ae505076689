"""No mask: each rank adds the raw logit of its nearest column.

Must get: every rank added a logit for the target
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    w, r = logits.shape[1], dist.get_rank()
    m = logits.amax(1)
    dist.all_reduce(m, dist.ReduceOp.MAX)
    s = torch.exp(logits - m[:, None]).sum(1)
    dist.all_reduce(s)
    t = logits.gather(1, (targets - r * w).clamp(0, w - 1)[:, None])[:, 0].contiguous()
    dist.all_reduce(t)
    return m + s.log() - t
