"""Even ranks send first, odd ones receive first: with an odd number of ranks two neighbours are even.

Must get: 0 → 2 → 0
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
    if rank % 2:
        dist.recv(from_left, left)
        dist.recv(from_right, right)
        dist.send(edge, right)
        dist.send(edge, left)
    else:
        dist.send(edge, right)
        dist.send(edge, left)
        dist.recv(from_left, left)
        dist.recv(from_right, right)
    return from_left, from_right
