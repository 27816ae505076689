"""Asks for a row as often as its id comes, and has its bits sent as numbers no larger than an id.

Must get: more than ids and counts need
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, rows = dist.get_world_size(), shard.shape[0]
    place = torch.argsort(ids, stable=True)
    wanted = ids[place]
    asked = torch.bincount(wanted // rows, minlength=p)
    to_give = torch.empty_like(asked)
    dist.all_to_all_single(to_give, asked)
    requests = torch.empty(int(to_give.sum()), dtype=torch.int64)
    dist.all_to_all_single(requests, wanted, to_give.tolist(), asked.tolist())
    answers = shard[requests % rows].contiguous().view(torch.int16).to(torch.int64)
    found = torch.empty((len(wanted), answers.shape[1]), dtype=torch.int64)
    dist.all_to_all_single(found, answers, asked.tolist(), to_give.tolist())
    found = found.to(torch.int16).view(shard.dtype)
    result = torch.empty_like(found)
    result[place] = found
    return result
