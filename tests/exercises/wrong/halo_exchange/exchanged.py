"""Returns the right neighbour's edge first.

Must get: left and right are swapped
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
    sending = [dist.isend(edge, right), dist.isend(edge, left)]
    dist.recv(from_left, left)
    dist.recv(from_right, right)
    for work in sending:
        work.wait()
    return from_right, from_left
