"""Receives first on rank 0 only, so that the blocks go round one rank after the other.

Must get: one after the other
"""

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    blocks = [[k.contiguous(), v.contiguous(), positions.contiguous()]]
    for _ in range(p - 1):
        come = [torch.empty_like(t) for t in blocks[-1]]
        if rank:
            for t in come:
                dist.recv(t, rank - 1)
        for t in blocks[-1]:
            dist.send(t, (rank + 1) % p)
        if not rank:
            for t in come:
                dist.recv(t, p - 1)
        blocks.append(come)
    keys, values, where = (torch.cat([b[i] for b in blocks]) for i in range(3))
    seen = where[None] <= positions[:, None]
    scores = (q.double() @ keys.double().T / q.shape[1] ** 0.5).masked_fill(~seen, float("-inf"))
    return (torch.softmax(scores, 1) @ values.double()).to(q.dtype)
