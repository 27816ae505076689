"""The ranks come back as int32.

Must get: Item 1 of what rank 0 returned has dtype int32; it must be int64
Must not get: other indices
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    p = dist.get_world_size()
    flat = tensor.flatten()
    own = torch.sort(flat, descending=True, stable=True).indices[:k]
    values = [torch.empty(len(own), dtype=flat.dtype) for _ in range(p)]
    indices = [torch.empty_like(own) for _ in range(p)]
    dist.all_gather(values, flat[own])
    dist.all_gather(indices, own.contiguous())
    values, indices = torch.cat(values), torch.cat(indices)
    ranks = torch.arange(p, dtype=torch.int32).repeat_interleave(len(own))
    best = torch.sort(values, descending=True, stable=True).indices[:k]
    return values[best], ranks[best], indices[best]
