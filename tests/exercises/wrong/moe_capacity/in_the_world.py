"""The room of an expert is for the tokens of all ranks together.

Must get: counted over all ranks
"""

import torch
import torch.distributed as dist


def moe_capacity(tokens, experts, capacity, expert_fns):
    rank, p, local = dist.get_rank(), dist.get_world_size(), len(expert_fns)
    total = p * local
    counts = torch.bincount(experts, minlength=total)
    everybody = torch.empty(p, total, dtype=torch.int64)
    dist.all_to_all_single(everybody, counts.repeat(p, 1))
    before = everybody[:rank].sum(0)
    wants = torch.nn.functional.one_hot(experts, total)
    place = (wants.cumsum(0) * wants).sum(1) - 1
    kept = (place + before[experts] < capacity).nonzero().flatten()
    slot = experts[kept] * capacity + place[kept]
    room = tokens.new_zeros(total * capacity, tokens.shape[1])
    room[slot] = tokens[kept]
    arrived = torch.empty_like(room)
    dist.all_to_all_single(arrived, room)
    by_expert = arrived.view(p, local, capacity, -1)
    done = torch.stack([fn(by_expert[:, i]) for i, fn in enumerate(expert_fns)], dim=1)
    back = torch.empty_like(room)
    dist.all_to_all_single(back, done.reshape(room.shape).contiguous())
    result = tokens.clone()
    result[kept] = back[slot]
    return result
