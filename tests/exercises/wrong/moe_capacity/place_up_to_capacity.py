"""Keeps place number capacity too.

Must get: IndexError
Must get: probably a token got place number capacity
"""

import torch
import torch.distributed as dist


def moe_capacity(tokens, experts, capacity, expert_fns):
    p = dist.get_world_size()
    L = len(expert_fns)
    E = L * p
    one = torch.nn.functional.one_hot(experts, E)
    place = (one.cumsum(0) - 1).gather(1, experts[:, None])[:, 0]
    keep = place <= capacity
    rows = tokens.new_zeros((E * capacity, tokens.shape[1]))
    idx = (experts * capacity + place)[keep]
    rows[idx] = tokens[keep]
    got = torch.empty_like(rows)
    dist.all_to_all_single(got, rows)
    got = got.reshape(p, L, capacity, -1)
    made = torch.empty_like(got)
    for j, fn in enumerate(expert_fns):
        made[:, j] = fn(got[:, j].reshape(p * capacity, tokens.shape[1])).reshape(p, capacity, -1)
    back = torch.empty_like(rows)
    dist.all_to_all_single(back, made.reshape(E * capacity, -1).contiguous())
    out = tokens.clone()
    out[keep] = back[idx]
    return out
