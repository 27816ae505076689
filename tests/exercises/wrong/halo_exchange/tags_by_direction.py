"""Sends to the left with tag 0, and takes what comes from the left with tag 0.

Must get: Rank 0 sends with tag 0, but rank 2 receives with tag 1
Must not get: sends before it receives
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
    works = [
        dist.isend(edge, left, tag=0),
        dist.isend(edge, right, tag=1),
        dist.irecv(from_left, left, tag=0),
        dist.irecv(from_right, right, tag=1),
    ]
    for work in works:
        work.wait()
    return from_left, from_right
