"""The target's logit is reduced with MAX.

Must get: was reduced with MAX
Must not get: is missing
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    r, w = dist.get_rank(), logits.shape[-1]
    m = logits.amax(-1).contiguous()
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    x = logits - m[:, None]
    s = torch.exp(x).sum(-1).contiguous()
    dist.all_reduce(s)
    local = targets - r * w
    inside = (local >= 0) & (local < w)
    t = torch.where(inside, x.gather(1, local.clamp(0, w - 1)[:, None])[:, 0], torch.zeros_like(m)).contiguous()
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return s.log() - t
