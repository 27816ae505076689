"""Each row once.

Must get: the rows of the different ids came back, in ascending order
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, rows = dist.get_world_size(), shard.shape[0]
    wanted, _ = torch.unique(ids, return_inverse=True)
    asked = torch.bincount(wanted // rows, minlength=p)
    to_give = torch.empty_like(asked)
    dist.all_to_all_single(to_give, asked)
    requests = torch.empty(int(to_give.sum()), dtype=torch.int64)
    dist.all_to_all_single(requests, wanted, to_give.tolist(), asked.tolist())
    answers = shard[requests % rows].contiguous()
    found = torch.empty((len(wanted), shard.shape[1]), dtype=shard.dtype)
    dist.all_to_all_single(found, answers, asked.tolist(), to_give.tolist())
    return found
