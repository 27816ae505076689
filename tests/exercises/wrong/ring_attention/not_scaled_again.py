"""Takes a new maximum, and leaves what was added before.

Must get: scale of an older maximum
"""

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    d = q.shape[-1]
    block = (k.contiguous(), v.contiguous(), positions.contiguous())
    top = torch.full((len(q), 1), -1e30)
    total = torch.zeros(len(q), 1)
    out = torch.zeros(len(q), v.shape[-1])
    for step in range(p):
        K, V, P = block
        s = (q.float() @ K.float().T / d**0.5).masked_fill(P[None] > positions[:, None], float("-inf"))
        new = torch.maximum(top, s.max(1, keepdim=True).values)
        e = (s - new).exp()
        total = total + e.sum(1, keepdim=True)
        out = out + e @ V.float()
        top = new
        if step < p - 1:
            nxt = tuple(torch.empty_like(t) for t in block)
            for w in dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in block]
                + [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in nxt]
            ):
                w.wait()
            block = nxt
    return (out / total).to(q.dtype)
