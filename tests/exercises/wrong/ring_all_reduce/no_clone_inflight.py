"""Receives into the chunk instead of adding to it.

Must get: its own contribution was not added to it
Must not get: off by one
"""

import torch.distributed as dist


def ring_all_reduce(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    flat = tensor.contiguous().clone().flatten()
    c = list(flat.tensor_split(p))
    nxt, prv = (r + 1) % p, (r - 1) % p
    for s in range(p - 1):
        q = dist.isend(c[(r - s) % p], nxt)
        dist.recv(c[(r - s - 1) % p], prv)
        q.wait()
    for s in range(p - 1):
        q = dist.isend(c[(r - s + 1) % p], nxt)
        dist.recv(c[(r - s) % p], prv)
        q.wait()
    tensor.copy_(flat.view_as(tensor))
