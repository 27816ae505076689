"""Tokens travel in torch's default dtype.

Must get: narrower dtype
"""

import torch
import torch.distributed as dist


def moe_dispatch_combine(tokens, experts, expert_fn):
    """Everything travels in torch's default dtype."""
    p = dist.get_world_size()
    order = torch.argsort(experts, stable=True)
    there = torch.bincount(experts, minlength=p)
    here = torch.empty_like(there)
    dist.all_to_all_single(here, there)
    there, here = there.tolist(), here.tolist()
    visitors = torch.empty(sum(here), tokens.shape[1])
    dist.all_to_all_single(visitors, tokens[order].float(), here, there)
    back = torch.empty(tokens.shape)
    dist.all_to_all_single(back, expert_fn(visitors), there, here)
    result = torch.empty(tokens.shape, dtype=tokens.dtype)
    result[order] = back.to(tokens.dtype)
    return result
