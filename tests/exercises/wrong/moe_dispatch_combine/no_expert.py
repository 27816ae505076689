"""Forgets expert_fn.

Must get: the rank's own input came back: nothing was exchanged or computed
"""

import torch
import torch.distributed as dist


def moe_dispatch_combine(tokens, experts, expert_fn):
    p = dist.get_world_size()
    order = torch.argsort(experts, stable=True)
    sent = torch.bincount(experts, minlength=p)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    there = torch.empty((int(received.sum()), tokens.shape[1]), dtype=tokens.dtype)
    dist.all_to_all_single(there, tokens[order].contiguous(), received.tolist(), sent.tolist())
    computed = there.to(tokens.dtype).contiguous()
    back = torch.empty(tokens.shape, dtype=tokens.dtype)
    dist.all_to_all_single(back, computed, sent.tolist(), received.tolist())
    result = torch.empty_like(back)
    result[order] = back
    return result
