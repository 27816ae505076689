"""Gathers every element.

Must get: 16 bytes
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    flat = tensor.reshape(-1).contiguous().double() if tensor.dtype != torch.int64 else tensor.reshape(-1).contiguous()
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, flat)
    everything = torch.cat(parts)
    best = torch.argsort(everything, descending=True, stable=True)[:k]
    return everything[best].to(tensor.dtype), best // flat.numel(), best % flat.numel()
