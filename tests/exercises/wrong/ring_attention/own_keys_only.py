"""Does not talk to anybody.

Must get: of its own arguments only: nothing of the other ranks is in it
"""

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    block = [k.contiguous(), v.contiguous(), positions.contiguous()]
    top = torch.full((len(q), 1), float("-inf"), dtype=torch.float64)
    total = torch.zeros(len(q), 1, dtype=torch.float64)
    out = torch.zeros(q.shape, dtype=torch.float64)
    for _step in range(1):
        works, coming = [], []
        if False:
            coming = [torch.empty_like(t) for t in block]
            ops = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in block]
            ops += [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in coming]
            works = dist.batch_isend_irecv(ops)
        keys, values, theirs = block
        scores = q.double() @ keys.double().T / q.shape[1] ** 0.5
        scores = scores.masked_fill(theirs[None] > positions[:, None], float("-inf"))
        new = torch.maximum(top, scores.amax(1, keepdim=True)) if len(q) else top
        weights = torch.nan_to_num((scores - new).exp())
        old = torch.nan_to_num((top - new).exp())
        total = total * old + weights.sum(1, keepdim=True)
        out = out * old + weights @ values.double()
        top = new
        for work in works:
            work.wait()
        block = coming
    return (out / total).to(q.dtype)
