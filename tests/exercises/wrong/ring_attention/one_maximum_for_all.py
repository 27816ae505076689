"""Subtracts the largest score of all queries.

Must get: the largest score of all queries was subtracted
"""

import math

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    blocks = [[k.contiguous(), v.contiguous(), positions.contiguous()]]
    for _ in range(p - 1):
        coming = [torch.empty_like(t) for t in blocks[-1]]
        ops = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in blocks[-1]]
        ops += [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in coming]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        blocks.append(coming)
    keys, values, places = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    scores = (q @ keys.T / q.shape[1] ** 0.5).masked_fill(places[None] > positions[:, None], -math.inf)
    weights = (scores - scores.amax()).exp()
    return weights @ values / weights.sum(1, keepdim=True)
