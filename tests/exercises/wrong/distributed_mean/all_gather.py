"""Gathers everything instead of reducing.

Must get: forbids: all_gather
"""

import torch
import torch.distributed as dist


def distributed_mean(tensor):
    tensors = [torch.empty_like(tensor.contiguous()) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors, tensor.contiguous())
    return torch.stack(tensors).mean(0)
