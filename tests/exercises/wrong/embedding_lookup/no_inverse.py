"""The last row of each shard is never found.

Must get: but must hold row
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, m = dist.get_world_size(), len(shard)
    u, inv = torch.unique(ids, return_inverse=True)
    owner = u // m
    send = torch.bincount(owner, minlength=p)
    recv = torch.empty_like(send)
    dist.all_to_all_single(recv, send)
    s, c = send.tolist(), recv.tolist()
    asked = torch.empty(sum(c), dtype=ids.dtype)
    dist.all_to_all_single(asked, u.contiguous(), c, s)
    rows = shard[asked % m + 1 - 1 if False else (asked - dist.get_rank() * m).clamp(0, m - 2)].contiguous()
    out = torch.empty(len(u), shard.shape[1], dtype=shard.dtype)
    dist.all_to_all_single(out, rows, s, c)
    return out[inv]
