"""Receives one edge only.

Must get: and nobody received it
Must not get: deadlock
"""

import torch
import torch.distributed as dist


def halo_exchange(edge):
    p, r = dist.get_world_size(), dist.get_rank()
    e = edge.contiguous()
    if p == 1:
        return e.clone(), e.clone()
    a, b = torch.empty_like(e), torch.empty_like(e)
    h1 = dist.isend(e, (r + 1) % p)
    h2 = dist.isend(e, (r - 1) % p)
    dist.recv(a, (r - 1) % p)
    h1.wait()
    h2.wait()
    return a, b
