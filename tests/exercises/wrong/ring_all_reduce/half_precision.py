"""Sends bfloat16.

Must get: bfloat16 on the wire (line 25, which leads to line 19)
Must not get: it is zero
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    flat = tensor.contiguous().clone().flatten()
    c = list(flat.tensor_split(p))
    nxt, prv = (r + 1) % p, (r - 1) % p

    def swap(x, n):
        buf = torch.empty(n, dtype=torch.bfloat16)
        q = dist.isend(x.to(torch.bfloat16), nxt)
        dist.recv(buf, prv)
        q.wait()
        return buf.to(tensor.dtype)

    for s in range(p - 1):
        c[(r - s - 1) % p] += swap(c[(r - s) % p], len(c[(r - s - 1) % p]))
    for s in range(p - 1):
        c[(r - s) % p].copy_(swap(c[(r - s + 1) % p], len(c[(r - s) % p])))
    tensor.copy_(torch.cat(c).view_as(tensor))
