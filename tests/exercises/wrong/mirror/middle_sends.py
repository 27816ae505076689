"""The middle rank sends to itself.

Must get: the middle rank is its own mirror image
Must not get: power of two
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    other = p - 1 - r
    out = torch.empty_like(tensor).contiguous()
    h = dist.isend(tensor.contiguous(), other)
    dist.recv(out, other)
    h.wait()
    return out
