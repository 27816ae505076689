"""Compares capacity with the token's number, not with its place.

Must get: were put into the places of the next expert
"""

import torch
import torch.distributed as dist


def moe_capacity(tokens, experts, capacity, expert_fns):
    p, count = dist.get_world_size(), len(expert_fns)
    total, width = p * count, tokens.shape[1]
    one_hot = torch.nn.functional.one_hot(experts, total)
    place = (one_hot.cumsum(0) - 1).gather(1, experts[:, None])[:, 0]
    fits = torch.arange(len(tokens)) < capacity * total
    slot = (experts * capacity + place)[fits]
    outgoing = torch.zeros(total * capacity, width, dtype=tokens.dtype)
    outgoing[slot] = tokens[fits]
    incoming = torch.empty_like(outgoing)
    dist.all_to_all_single(incoming, outgoing)
    rows = incoming.view(p, count, capacity, width)
    made = torch.empty_like(rows)
    for local, fn in enumerate(expert_fns):
        made[:, local] = fn(rows[:, local].reshape(-1, width)).view(p, capacity, width)
    back = torch.empty_like(outgoing)
    dist.all_to_all_single(back, made.view(-1, width))
    result = tokens.clone()
    result[fits] = back[slot]
    return result
