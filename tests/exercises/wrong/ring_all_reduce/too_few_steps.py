"""The reduce-scatter is one step short.

Must get: the loop ends too early
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    flat = tensor.contiguous().clone().flatten()
    c = list(flat.tensor_split(p))
    nxt, prv = (r + 1) % p, (r - 1) % p
    for s in range(p - 2):
        buf = torch.empty_like(c[(r - s - 1) % p])
        q = dist.isend(c[(r - s) % p].clone(), nxt)
        dist.recv(buf, prv)
        q.wait()
        c[(r - s - 1) % p] += buf
    for s in range(p - 1):
        buf = torch.empty_like(c[(r - s) % p])
        q = dist.isend(c[(r - s + 1) % p].clone(), nxt)
        dist.recv(buf, prv)
        q.wait()
        c[(r - s) % p].copy_(buf)
    tensor.copy_(torch.cat(c).view_as(tensor))
