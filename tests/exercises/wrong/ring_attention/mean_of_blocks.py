"""The mean of what each block gives after its own softmax.

Must get: the mean of the blocks' outputs
"""

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    block = [k.contiguous(), v.contiguous(), positions.contiguous()]
    out = torch.zeros(q.shape, dtype=torch.float64)
    for step in range(p):
        works, coming = [], []
        if step < p - 1:
            coming = [torch.empty_like(t) for t in block]
            ops = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in block]
            ops += [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in coming]
            works = dist.batch_isend_irecv(ops)
        keys, values, theirs = block
        scores = q.double() @ keys.double().T / q.shape[1] ** 0.5
        scores = scores.masked_fill(theirs[None] > positions[:, None], float("-inf"))
        out = out + torch.nan_to_num(torch.softmax(scores, 1)) @ values.double()
        for work in works:
            work.wait()
        block = coming
    return (out / p).to(q.dtype)
