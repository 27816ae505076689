"""Takes the pieces for those of the ranks on the other side.

Must get: stands s places on the other side of the rank's own
"""

import torch
import torch.distributed as dist


def async_tp_linear(x, multiply):
    rank, p = dist.get_rank(), dist.get_world_size()
    cur = x.contiguous()
    out = [None] * p
    for s in range(p):
        if s < p - 1:
            got = torch.empty(x.shape, dtype=x.dtype)
            ws = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, cur, (rank + 1) % p), dist.P2POp(dist.irecv, got, (rank - 1) % p)]
            )
        out[(rank + s) % p] = multiply(cur)
        if s < p - 1:
            for w in ws:
                w.wait()
            cur = got
    return torch.cat(out)
