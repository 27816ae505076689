"""The rows travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: send each share once
"""

import torch
import torch.distributed as dist


def rp():
    return dist.get_rank(), dist.get_world_size()


def async_tp_linear(x, multiply):
    rank, p = rp()
    cur = x.double().contiguous()
    out = [None] * p
    for s in range(p):
        if s < p - 1:
            got = torch.empty_like(cur)
            ws = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, cur, (rank + 1) % p), dist.P2POp(dist.irecv, got, (rank - 1) % p)]
            )
        out[(rank - s) % p] = multiply(cur.to(x.dtype))
        if s < p - 1:
            for w in ws:
                w.wait()
            cur = got
    return torch.cat(out)
