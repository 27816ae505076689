"""Lays the copies out by token, but cuts them by rank.

Must get: the copies lie in the order of the tokens
"""

import torch
import torch.distributed as dist


def moe_top_k(tokens, experts, weights, expert_fns):
    rank, p, local = dist.get_rank(), dist.get_world_size(), len(expert_fns)
    needs = torch.stack([(experts // local == r).any(1) for r in range(p)])
    rows = needs.T.nonzero()[:, 0]
    sending = needs.sum(1)
    arriving = torch.empty_like(sending)
    dist.all_to_all_single(arriving, sending)
    gives, gets = sending.tolist(), arriving.tolist()

    def exchanged(t, there, here):
        out = t.new_empty((sum(here), *t.shape[1:]))
        dist.all_to_all_single(out, t.contiguous(), here, there)
        return out

    inbox, numbers, scales = (exchanged(t[rows], gives, gets) for t in (tokens, experts, weights))
    wide = torch.promote_types(tokens.dtype, torch.float32)
    total = torch.zeros(inbox.shape, dtype=wide)
    for i, fn in enumerate(expert_fns):
        at, choice = (numbers == rank * local + i).nonzero(as_tuple=True)
        total.index_add_(0, at, scales[at, choice, None].to(wide) * fn(inbox[at]).to(wide))
    back = exchanged(total.to(tokens.dtype), gets, gives)
    result = torch.zeros(tokens.shape, dtype=wide)
    return result.index_add_(0, rows, back.to(wide)).to(tokens.dtype)
