"""The sizes of the output and of the input changed places.

Must get: but its input has 3 rows
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, rows = dist.get_world_size(), len(shard)
    wanted, place = torch.unique(ids, return_inverse=True)
    asking = torch.bincount(wanted // rows, minlength=p)
    asked = torch.empty_like(asking)
    dist.all_to_all_single(asked, asking)
    asking, asked = asking.tolist(), asked.tolist()
    theirs = torch.empty(sum(asked), dtype=torch.int64)
    dist.all_to_all_single(theirs, wanted, asking, asked)
    found = torch.empty(len(wanted), shard.shape[1], dtype=shard.dtype)
    dist.all_to_all_single(found, shard[theirs % rows], asked, asking)
    return found[place]
