"""Gathers absolute values.

Must get: absolute values came back
Must not get: pairs of reals
"""

import torch
import torch.distributed as dist


def exchange(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def bruck_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    t = tensor.contiguous()
    if t.is_complex():
        t = t.abs()
    buf = t[None]
    while len(buf) < p:
        n = min(len(buf), p - len(buf))
        d = len(buf)
        got = torch.empty_like(buf[:n])
        exchange(("s", buf[:n].contiguous(), (rank - d) % p), ("r", got, (rank + d) % p))
        buf = torch.cat([buf, got])
    return torch.cat(list(buf.roll(rank, 0)))
