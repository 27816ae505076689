"""What is sent with tag 1 is received with tag 2.

Must get: sends with tag 1, but rank 1 receives with tag 2
Must not get: none of them has sent
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
    sending = [dist.isend(edge, right, tag=1), dist.isend(edge, left, tag=2)]
    dist.recv(from_left, left, tag=2)
    dist.recv(from_right, right, tag=1)
    for one in sending:
        one.wait()
    return from_left, from_right
