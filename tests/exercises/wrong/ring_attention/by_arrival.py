"""Takes the order in which blocks came for the order of the sequence.

Must get: the order in which the blocks came
"""

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    d = q.shape[-1]
    blocks = [(k.contiguous(), v.contiguous(), positions.contiguous())]
    for _ in range(p - 1):
        new = tuple(torch.empty_like(t) for t in blocks[-1])
        ops = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in blocks[-1]]
        ops += [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in new]
        for w in dist.batch_isend_irecv(ops):
            w.wait()
        blocks.append(new)
    K, V, P = (torch.cat(ts) for ts in zip(*blocks, strict=False))
    work = torch.float64 if q.dtype == torch.float64 else torch.float32
    s = q.to(work) @ K.to(work).T / d**0.5
    s = s.masked_fill(torch.arange(len(P))[None, :] > positions[:, None], float("-inf"))
    return (s.softmax(-1) @ V.to(work)).to(q.dtype)
