"""Rows in the order of their owners.

Must get: put them back into the order of ids
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, rows = dist.get_world_size(), shard.shape[0]
    place = torch.argsort(ids // rows, stable=True)
    wanted = ids[place]
    asked = torch.bincount(wanted // rows, minlength=p)
    to_give = torch.empty_like(asked)
    dist.all_to_all_single(to_give, asked)
    requests = torch.empty(int(to_give.sum()), dtype=torch.int64)
    dist.all_to_all_single(requests, wanted, to_give.tolist(), asked.tolist())
    answers = shard[requests % rows].contiguous()
    found = torch.empty((len(wanted), shard.shape[1]), dtype=shard.dtype)
    dist.all_to_all_single(found, answers, asked.tolist(), to_give.tolist())
    return found
