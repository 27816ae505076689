"""A rank that has no token and gets none leaves before the way back.

Must get: have returned without calling it
"""

import torch
import torch.distributed as dist


def exchange(rows, gives, takes):
    got = torch.empty((sum(takes), *rows.shape[1:]), dtype=rows.dtype)
    dist.all_to_all_single(got, rows.contiguous(), takes, gives)
    return got


def moe_dispatch_combine(tokens, experts, expert_fn):
    p = dist.get_world_size()
    places = [[] for _ in range(p)]
    for i, e in enumerate(experts.tolist()):
        places[e].append(i)
    gives = [len(x) for x in places]
    takes = exchange(torch.tensor(gives), [1] * p, [1] * p).tolist()
    order = torch.tensor([i for part in places for i in part], dtype=torch.int64)
    came = exchange(tokens[order], gives, takes)
    if not sum(takes) and not sum(gives):
        return tokens.clone()
    back = exchange(expert_fn(came), takes, gives)
    result = torch.empty_like(back)
    result[order] = back
    return result
