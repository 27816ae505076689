"""The colleague's: every rank sends before it receives.

Must get: every rank sends before it receives
"""

import torch
import torch.distributed as dist


def halo_exchange(edge):
    rank, p = dist.get_rank(), dist.get_world_size()
    if p == 1:
        return edge.clone(), edge.clone()
    left, right = (rank - 1) % p, (rank + 1) % p
    edge = edge.contiguous()
    from_left, from_right = torch.empty_like(edge), torch.empty_like(edge)
    dist.send(edge, right)
    dist.recv(from_left, left)
    dist.send(edge, left)
    dist.recv(from_right, right)
    return from_left, from_right
