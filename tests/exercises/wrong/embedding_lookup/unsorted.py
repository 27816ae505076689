"""Cuts the ids by the sizes without sorting them by owner.

Must get: ids cut by the sizes without being sorted
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, s = dist.get_world_size(), len(shard)
    ids = ids.contiguous()
    ask = torch.bincount(ids // s, minlength=p)
    give = torch.empty_like(ask)
    dist.all_to_all_single(give, ask)
    ask, give = ask.tolist(), give.tolist()
    asked = torch.empty(sum(give), dtype=ids.dtype)
    dist.all_to_all_single(asked, ids, give, ask)
    rows = torch.empty(len(ids), shard.shape[1], dtype=shard.dtype)
    dist.all_to_all_single(rows, shard[asked % s], ask, give)
    return rows
