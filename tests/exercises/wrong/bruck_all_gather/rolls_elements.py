"""Rolls by the rank, not by as many tensors.

Must get: each stands 16 places too early
"""

import torch
import torch.distributed as dist


def swap(out, to, into, source):
    ops = [dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, source)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def bruck_all_gather(tensor):
    r, p = dist.get_rank(), dist.get_world_size()
    buf = tensor.contiguous()
    n, have = len(tensor), 1
    while have < p:
        k = min(have, p - have)
        got = torch.empty((k * n, *buf.shape[1:]), dtype=buf.dtype)
        swap(buf[: k * n].contiguous(), (r - have) % p, got, (r + have) % p)
        buf = torch.cat((buf, got))
        have += k
    return buf.roll(r, 0)
