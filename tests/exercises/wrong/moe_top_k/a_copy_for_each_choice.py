"""Sends a token as often as a rank has experts of it, and each copy is computed by all of them.

Must get: their sum was added that many times
"""

import torch
import torch.distributed as dist


def moe_top_k(tokens, experts, weights, expert_fns):
    rank, p, local = dist.get_rank(), dist.get_world_size(), len(expert_fns)
    home = experts // local
    rows = [(home == r).nonzero()[:, 0] for r in range(p)]
    here = torch.tensor([len(one) for one in rows])
    there = torch.empty_like(here)
    dist.all_to_all_single(there, here)
    rows, here, there = torch.cat(rows), here.tolist(), there.tolist()

    def exchanged(t, gets, gives):
        out = t.new_empty((sum(gets), *t.shape[1:]))
        dist.all_to_all_single(out, t.contiguous(), gets, gives)
        return out

    x, numbers = exchanged(tokens[rows], there, here), exchanged(experts[rows], there, here)
    scale = exchanged(weights[rows], there, here)
    wide = torch.promote_types(tokens.dtype, torch.float32)
    total = torch.zeros(x.shape, dtype=wide)
    for i, fn in enumerate(expert_fns):
        at, choice = (numbers == rank * local + i).nonzero(as_tuple=True)
        total[at] += scale[at, choice][:, None] * fn(x[at])
    back = exchanged(total.to(tokens.dtype), here, there)
    result = torch.zeros(tokens.shape, dtype=wide)
    result.index_add_(0, rows, back.to(wide))
    return result.to(tokens.dtype)
