"""Expert e on rank p-1-e.

Must get: the tokens went to the ranks in the reverse order
"""

import torch
import torch.distributed as dist


def moe_dispatch_combine(tokens, experts, expert_fn):
    p = dist.get_world_size()
    e = p - 1 - experts
    o = torch.argsort(e, stable=True)
    n = torch.bincount(e, minlength=p)
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
