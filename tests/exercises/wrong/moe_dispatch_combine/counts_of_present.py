"""Counts with unique, which leaves out an expert without tokens.

Must get: an expert without tokens was left out of the counts
"""

import torch
import torch.distributed as dist


def moe_dispatch_combine(tokens, experts, expert_fn):
    p = dist.get_world_size()
    o = torch.argsort(experts, stable=True)
    c = torch.unique(experts, return_counts=True)[1]
    n = torch.zeros(p, dtype=torch.int64)
    n[: len(c)] = c
    m = torch.empty_like(n)
    dist.all_to_all_single(m, n)
    n, m = n.tolist(), m.tolist()
    got = torch.empty(sum(m), tokens.shape[1], dtype=tokens.dtype)
    dist.all_to_all_single(got, tokens[o].contiguous(), m, n)
    made = expert_fn(got)
    back = torch.empty(len(tokens), made.shape[1], dtype=made.dtype)
    dist.all_to_all_single(back, made.contiguous(), n, m)
    r = torch.empty_like(back)
    r[o] = back
    return r
