"""The tensors travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: send no tensor that
"""

import torch
import torch.distributed as dist


def ex(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def rp():
    return dist.get_rank(), dist.get_world_size()


def bruck_all_gather(tensor):
    rank, p = rp()
    t = tensor.double() if tensor.dtype == torch.float32 else tensor
    buf = t.contiguous()[None]
    while len(buf) < p:
        n = min(len(buf), p - len(buf))
        d = len(buf)
        got = torch.empty_like(buf[:n])
        ex(("s", buf[:n].contiguous(), (rank - d) % p), ("r", got, (rank + d) % p))
        buf = torch.cat([buf, got])
    return torch.cat(list(buf.roll(rank, 0))).to(tensor.dtype)
