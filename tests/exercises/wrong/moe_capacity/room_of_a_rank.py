"""Counts the room for all experts of a rank together.

Must get: each expert has room of its own
"""

import torch
import torch.distributed as dist


def moe_capacity(tokens, experts, capacity, expert_fns):
    p, local = dist.get_world_size(), len(expert_fns)
    total, width = p * local, tokens.shape[1]
    wants = torch.nn.functional.one_hot(experts // local, p)
    place = (wants.cumsum(0) * wants).sum(1) - 1
    kept = (place < capacity).nonzero().flatten()
    slot = experts[kept] * capacity + place[kept]

    room = tokens.new_zeros(total * capacity, width)
    room[slot] = tokens[kept]
    arrived = torch.empty_like(room)
    dist.all_to_all_single(arrived, room)
    by_expert = arrived.view(p, local, capacity, width)
    done = torch.stack([fn(by_expert[:, i]) for i, fn in enumerate(expert_fns)], dim=1)
    back = torch.empty_like(room)
    dist.all_to_all_single(back, done.reshape(total * capacity, width).contiguous())
    result = tokens.clone()
    result[kept] = back[slot]
    return result
