"""Ranks of which nothing is wanted are missing in the counts.

Must get: all_to_all_single without sizes cuts its input into
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    rows = len(shard)
    wanted, place = torch.unique(ids, return_inverse=True)
    asking = torch.bincount(wanted // rows)
    asked = torch.empty_like(asking)
    dist.all_to_all_single(asked, asking)
    asking, asked = asking.tolist(), asked.tolist()
    theirs = torch.empty(sum(asked), dtype=torch.int64)
    dist.all_to_all_single(theirs, wanted, asked, asking)
    found = torch.empty(len(wanted), shard.shape[1], dtype=shard.dtype)
    dist.all_to_all_single(found, shard[theirs % rows], asking, asked)
    return found[place]
