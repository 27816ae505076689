"""Keys and values travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: pass on the block
"""

import math

import torch
import torch.distributed as dist


def ex(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def rp():
    return dist.get_rank(), dist.get_world_size()


def ring_attention(q, k, v, positions):
    rank, p = rp()
    ks, vs, ps = [k.double().contiguous()], [v.double().contiguous()], [positions.contiguous()]
    for _ in range(p - 1):
        a, b, c = torch.empty_like(ks[0]), torch.empty_like(vs[0]), torch.empty_like(ps[0])
        right, left = (rank + 1) % p, (rank - 1) % p
        ex(
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
    s = (q.double() @ K.T / q.shape[-1] ** 0.5).masked_fill(P[None] > positions[:, None], -math.inf)
    return (s.softmax(-1) @ V).to(q.dtype)
