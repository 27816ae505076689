"""Never sends the results back.

Must get: the way back is missing
"""

import torch
import torch.distributed as dist


def moe_capacity(tokens, experts, capacity, expert_fns):
    p, L = dist.get_world_size(), len(expert_fns)
    E = p * L
    w = tokens.shape[1]
    hot = torch.nn.functional.one_hot(experts, E)
    place = (hot.cumsum(0) * hot).sum(1) - 1
    ok = place < capacity
    slot = (experts * capacity + place)[ok]
    send = tokens.new_zeros(E * capacity, w)
    send[slot] = tokens[ok]
    got = torch.empty_like(send)
    dist.all_to_all_single(got, send)
    x = got.view(p, L, capacity, w)
    y = torch.empty_like(x)
    for i, f in enumerate(expert_fns):
        y[:, i] = f(x[:, i].reshape(-1, w)).view(p, capacity, w)
    back = torch.empty_like(send)
    back = y.view(-1, w)
    out = tokens.clone()
    out[ok] = back[slot]
    return out
