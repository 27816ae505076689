"""Asks with ids in float32, which holds them, beside a table in float64.

Must get: ids in an integer dtype
Must not get: different ids
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p = dist.get_world_size()
    s, width = shard.shape
    u, inv = torch.unique(ids, return_inverse=True)
    n = torch.bincount(u // s, minlength=p)
    m = torch.empty_like(n)
    dist.all_to_all_single(m, n)
    n, m = n.tolist(), m.tolist()
    asked = torch.empty(sum(m))
    dist.all_to_all_single(asked, u.float(), m, n)
    rows = torch.empty(len(u), width, dtype=shard.dtype)
    dist.all_to_all_single(rows, shard[asked.long() % s].contiguous(), n, m)
    return rows[inv]
