"""Two receives, but one send only.

Must get: what they sent has all been received
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
    sending = dist.isend(edge, right)
    dist.recv(from_left, left)
    dist.recv(from_right, right)
    sending.wait()
    return from_left, from_right
