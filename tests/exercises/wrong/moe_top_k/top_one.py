"""Uses the first choice only.

Must get: only one of its experts
"""

import torch
import torch.distributed as dist


def moe_top_k(tokens, experts, weights, expert_fns):
    rank, p, local = dist.get_rank(), dist.get_world_size(), len(expert_fns)
    experts, weights = experts[:, :1], weights[:, :1]
    home = experts // local
    needs = torch.stack([(home == r).any(1) for r in range(p)])  # (p, n)
    rows = needs.nonzero()[:, 1]  # by rank, then by token
    sending = needs.sum(1)
    arriving = torch.empty_like(sending)
    dist.all_to_all_single(arriving, sending)
    here, there = sending.tolist(), arriving.tolist()

    def exchanged(t, gets, gives):
        out = t.new_empty((sum(gets), *t.shape[1:]))
        dist.all_to_all_single(out, t.contiguous(), gets, gives)
        return out

    inbox = exchanged(tokens[rows], there, here)
    numbers = exchanged(experts[rows], there, here)
    scales = exchanged(weights[rows], there, here)
    wide = torch.promote_types(tokens.dtype, torch.float32)
    total = torch.zeros(inbox.shape, dtype=wide)
    for i, fn in enumerate(expert_fns):
        at, choice = (numbers == rank * local + i).nonzero(as_tuple=True)
        total.index_add_(0, at, scales[at, choice, None].to(wide) * fn(inbox[at]).to(wide))
    back = exchanged(total.to(tokens.dtype), here, there)
    result = torch.zeros(tokens.shape, dtype=wide)
    result.index_add_(0, rows, back.to(wide))
    return result.to(tokens.dtype)
