"""Divides the scores by the root of the number of tokens.

Must get: the scores are divided by the root of the number of a rank's tokens
"""

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    block = [k.contiguous(), v.contiguous(), positions.contiguous()]
    top = torch.full((len(q), 1), float("-inf"), dtype=torch.float64)
    total, out = torch.zeros_like(top), torch.zeros(q.shape, dtype=torch.float64)
    for step in range(p):
        works, coming = [], []
        if step < p - 1:
            coming = [torch.empty_like(t) for t in block]
            sends = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in block]
            works = dist.batch_isend_irecv(sends + [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in coming])
        keys, values, places = block
        scores = q.double() @ keys.double().T / q.shape[0] ** 0.5
        scores = scores.masked_fill(places[None, :] > positions[:, None], float("-inf"))
        new = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        seen = new > float("-inf")
        weights = torch.where(seen, (scores - new).exp(), 0)
        old = torch.where(seen, (top - new).exp(), 0)
        total, out, top = total * old + weights.sum(dim=1, keepdim=True), out * old + weights @ values.double(), new
        for work in works:
            work.wait()
        block = coming
    return (out / total).to(q.dtype)
