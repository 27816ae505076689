"""Gathers all tokens everywhere.

Must get: forbids: all_gather
"""

import torch
import torch.distributed as dist


def moe_dispatch_combine(tokens, experts, expert_fn):
    everything = [torch.empty_like(tokens.contiguous()) for _ in range(dist.get_world_size())]
    dist.all_gather(everything, tokens.contiguous())
    return expert_fn(everything[dist.get_rank()])
