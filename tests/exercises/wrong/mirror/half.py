"""Only the lower half sends.

Must get: the rank's own input came back
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    o = p - 1 - r
    if o == r:
        return tensor.clone()
    out = torch.empty_like(tensor).contiguous()
    if r < o:
        dist.send(tensor.contiguous(), o)
        return tensor.clone()
    dist.recv(out, o)
    return out
