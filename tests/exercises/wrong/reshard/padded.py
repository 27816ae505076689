"""Pads every piece to the longest one.

Must get: goes straight to the rank that has it afterwards
"""

import torch
import torch.distributed as dist


def reshard(shard, before, after):
    rank, p = dist.get_rank(), dist.get_world_size()
    owner = [r for r in range(p) for _ in range(before[r])]
    taker = [r for r in range(p) for _ in range(after[r])]
    pairs = list(zip(owner, taker, strict=False))
    most = max([pairs.count(pair) for pair in pairs], default=0)
    send, at = torch.zeros(p, most, shard.shape[1], dtype=shard.dtype), 0
    for peer in range(p):
        n = pairs.count((rank, peer))
        send[peer, :n] = shard[at : at + n]
        at += n
    received = torch.empty_like(send)
    dist.all_to_all_single(received, send)
    return torch.cat([received[peer, : pairs.count((peer, rank))] for peer in range(p)])
