"""The rows travel as float64.

Must get: sends float64
"""

import torch
import torch.distributed as dist


def rp():
    return dist.get_rank(), dist.get_world_size()


def embedding_lookup(ids, shard):
    _rank, p = rp()
    s, width = shard.shape
    u, inv = torch.unique(ids, return_inverse=True)
    n = torch.bincount(u // s, minlength=p)
    m = torch.empty_like(n)
    dist.all_to_all_single(m, n)
    n, m = n.tolist(), m.tolist()
    asked = torch.empty(sum(m), dtype=ids.dtype)
    dist.all_to_all_single(asked, u, m, n)
    rows = torch.empty(len(u), width, dtype=torch.float64)
    dist.all_to_all_single(rows, shard[asked % s].double().contiguous(), n, m)
    return rows[inv].to(shard.dtype)
