"""Gathers everything to pick one.

Must get: forbids: all_gather
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    p = dist.get_world_size()
    tensors = [torch.empty_like(tensor.contiguous()) for _ in range(p)]
    dist.all_gather(tensors, tensor.contiguous())
    return tensors[(dist.get_rank() - k) % p]
