"""Receives first on rank 0 only, so that the blocks go round one rank after the other.

Must get: one after the other
"""

import torch
import torch.distributed as dist


def one_block(q, positions, block):
    keys, values, where = block
    scores = q.double() @ keys.double().T / q.shape[1] ** 0.5
    scores = scores.masked_fill(where[None] > positions[:, None], float("-inf"))
    logs = torch.logsumexp(scores, 1, keepdim=True)
    weights = torch.where(torch.isinf(logs), torch.zeros_like(scores), (scores - logs).exp())
    return weights @ values.double(), logs


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    block = [k.contiguous(), v.contiguous(), positions.contiguous()]
    merged = one_block(q, positions, block)
    for _ in range(p - 1):
        come = [torch.empty_like(t) for t in block]
        if rank:
            for t in come:
                dist.recv(t, rank - 1)
        for t in block:
            dist.send(t, (rank + 1) % p)
        if not rank:
            for t in come:
                dist.recv(t, p - 1)
        block = come
        (out, logs), (more, new) = merged, one_block(q, positions, block)
        both = torch.logaddexp(logs, new)
        merged = out * (logs - both).exp() + more * (new - both).exp(), both
    return merged[0].to(q.dtype)
