"""Rows travel in torch's default dtype.

Must get: narrower dtype
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    """The rows' buffer has torch's default dtype, and the rows are cast to fit it."""
    p, s = dist.get_world_size(), len(shard)
    wanted, place = torch.unique(ids, return_inverse=True)
    ask = torch.bincount(wanted // s, minlength=p)
    give = torch.empty_like(ask)
    dist.all_to_all_single(give, ask)
    ask, give = ask.tolist(), give.tolist()
    asked = torch.empty(sum(give), dtype=torch.int64)
    dist.all_to_all_single(asked, wanted, give, ask)
    rows = torch.empty(len(wanted), shard.shape[1])
    dist.all_to_all_single(rows, shard[asked % s].float(), ask, give)
    return rows[place].to(shard.dtype)
