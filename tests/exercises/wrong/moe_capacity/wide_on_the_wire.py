"""The tokens travel as float64.

Must get: send values in the tensor's own dtype, and indices and counts in an integer dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def moe_capacity(tokens, experts, capacity, expert_fns):
    """A place in the room for each token, by a cumulative count."""
    p, local = dist.get_world_size(), len(expert_fns)
    total, width = p * local, tokens.shape[1]
    wants = torch.nn.functional.one_hot(experts, total)
    place = (wants.cumsum(0) * wants).sum(1) - 1
    kept = (place < capacity).nonzero().flatten()
    slot = experts[kept] * capacity + place[kept]

    room = torch.zeros(total * capacity, width, dtype=torch.float64)
    room[slot] = tokens[kept].double()
    arrived = torch.empty_like(room)
    dist.all_to_all_single(arrived, room)
    by_expert = arrived.to(tokens.dtype).view(p, local, capacity, width)
    done = torch.stack([fn(by_expert[:, i]) for i, fn in enumerate(expert_fns)], dim=1)
    back = torch.empty_like(room)
    dist.all_to_all_single(back, done.reshape(total * capacity, width).double())
    result = tokens.clone()
    result[kept] = back[slot].to(tokens.dtype)
    return result
