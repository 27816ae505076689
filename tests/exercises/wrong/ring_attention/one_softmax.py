"""Scores each block when it comes, but keeps scores and values of all, for one softmax at the end.

Must get: merge each block into one summary
"""

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    block = [k.contiguous(), v.contiguous(), positions.contiguous()]
    scores, values = [], []
    for step in range(p):
        keys, vals, places = block
        scores.append(
            (q.double() @ keys.double().T / q.shape[1] ** 0.5).masked_fill(
                places[None, :] > positions[:, None], float("-inf")
            )
        )
        values.append(vals)
        if step < p - 1:
            coming = [torch.empty_like(t) for t in block]
            sends = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in block]
            for work in dist.batch_isend_irecv(sends + [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in coming]):
                work.wait()
            block = coming
    return (torch.cat(scores, 1).softmax(1) @ torch.cat(values).double()).to(q.dtype)
