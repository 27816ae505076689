"""Takes the softmax over the wrong dimension.

Must get: elements wrong
"""

import math

import torch
import torch.distributed as dist


def exchange(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    ks, vs, ps = [k.contiguous()], [v.contiguous()], [positions.contiguous()]
    for _ in range(p - 1):
        a, b, c = torch.empty_like(ks[0]), torch.empty_like(vs[0]), torch.empty_like(ps[0])
        right, left = (rank + 1) % p, (rank - 1) % p
        exchange(
            ("s", ks[-1], right),
            ("s", vs[-1], right),
            ("s", ps[-1], right),
            ("r", a, left),
            ("r", b, left),
            ("r", c, left),
        )
        ks.append(a)
        vs.append(b)
        ps.append(c)
    K, V, P = torch.cat(ks), torch.cat(vs), torch.cat(ps)
    s = (q @ K.T / q.shape[-1] ** 0.5).masked_fill(P[None] > positions[:, None], -math.inf)
    return s.softmax(0).nan_to_num() @ V
