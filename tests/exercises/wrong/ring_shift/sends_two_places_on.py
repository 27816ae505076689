"""Even ranks send first and the others receive first, but everybody sends twice as far as it must.

Must get: send to rank 0, which is this rank itself
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    p, r = dist.get_world_size(), dist.get_rank()
    to, source = (r + 2 * k) % p, (r - k) % p
    if k % p == 0:
        return tensor.clone()
    out = tensor.contiguous()
    arrived = torch.empty_like(out)
    if r % 2 == 0:
        dist.send(out, to)
        dist.recv(arrived, source)
    else:
        dist.recv(arrived, source)
        dist.send(out, to)
    return arrived
