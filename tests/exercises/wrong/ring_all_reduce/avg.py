"""Doubles the sum.

Must get: each element is 2 times the right one
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    flat = tensor.contiguous().clone().flatten()
    c = list(flat.tensor_split(p))
    nxt, prv = (r + 1) % p, (r - 1) % p
    for s in range(p - 1):
        buf = torch.empty_like(c[(r - s - 1) % p])
        q = dist.isend(c[(r - s) % p].clone(), nxt)
        dist.recv(buf, prv)
        q.wait()
        c[(r - s - 1) % p] += buf
    for s in range(p - 1):
        q = dist.isend(c[(r - s + 1) % p].clone(), nxt)
        dist.recv(c[(r - s) % p], prv)
        q.wait()
    flat += flat
    tensor.copy_(flat.view_as(tensor))
