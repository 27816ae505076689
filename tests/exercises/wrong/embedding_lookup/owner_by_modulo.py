"""Takes rank id % p for the owner, as if the rows were dealt out.

Must get: looked up on rank id % p
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, s = dist.get_world_size(), len(shard)
    wanted, place = torch.unique(ids, return_inverse=True)
    order = torch.argsort(wanted % p, stable=True)
    ask = torch.bincount(wanted % p, minlength=p)
    give = torch.empty_like(ask)
    dist.all_to_all_single(give, ask)
    ask, give = ask.tolist(), give.tolist()
    asked = torch.empty(sum(give), dtype=wanted.dtype)
    dist.all_to_all_single(asked, wanted[order], give, ask)
    rows = torch.empty(len(wanted), shard.shape[1], dtype=shard.dtype)
    dist.all_to_all_single(rows, shard[asked % s], ask, give)
    result = torch.empty_like(rows)
    result[order] = rows
    return result[place]
