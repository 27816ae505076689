"""The vector travels as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
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


def mirror(tensor):
    rank, p = rp()
    q = p - 1 - rank
    if q == rank:
        return tensor.clone()
    t = tensor.double() if tensor.dtype == torch.float32 else tensor
    t = t.contiguous()
    got = torch.empty_like(t)
    ex(("s", t, q), ("r", got, q))
    return got.to(tensor.dtype)
