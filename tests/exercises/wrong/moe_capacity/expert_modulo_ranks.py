"""Looks for expert e on rank e % p.

Must get: looked for on rank e % p
"""

import torch
import torch.distributed as dist


def moe_capacity(tokens, experts, capacity, expert_fns):
    p, L = dist.get_world_size(), len(expert_fns)
    width = tokens.shape[1]
    room = torch.zeros(p, L, capacity, width, dtype=tokens.dtype)
    used, place = {}, []
    for i, e in enumerate(experts.tolist()):
        c = used.get(e, 0)
        used[e] = c + 1
        if c < capacity:
            room[e % p, e // p, c] = tokens[i]
            place.append((i, e, c))
    came = torch.empty_like(room)
    dist.all_to_all_single(came, room)
    made = torch.stack(
        [expert_fns[i](came[:, i].reshape(-1, width)).view(p, capacity, width) for i in range(L)], 1
    ).contiguous()
    back = torch.empty_like(made)
    dist.all_to_all_single(back, made)
    result = tokens.clone(memory_format=torch.contiguous_format)
    for i, e, c in place:
        result[i] = back[e % p, e // p, c]
    return result
