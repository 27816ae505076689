"""Sorts what should bring the rows back into the order of ids.

Must get: in ascending order of the ids
Must not get: again
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    _rank, p = dist.get_rank(), dist.get_world_size()
    s, width = shard.shape
    u, inv = torch.unique(ids, return_inverse=True)
    n = torch.bincount(u // s, minlength=p)
    m = torch.empty_like(n)
    dist.all_to_all_single(m, n)
    n, m = n.tolist(), m.tolist()
    asked = torch.empty(sum(m), dtype=ids.dtype)
    dist.all_to_all_single(asked, u, m, n)
    rows = torch.empty(len(u), width, dtype=shard.dtype)
    dist.all_to_all_single(rows, shard[asked % s].contiguous(), n, m)
    return rows[inv.sort().values]
