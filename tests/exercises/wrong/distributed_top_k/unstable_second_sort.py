"""The own candidates are sorted with stable=True, but all candidates are not.

Must get: the right values with other indices: ties go to the lowest rank
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
    ranks = torch.arange(p).repeat_interleave(len(own))
    best = torch.sort(values, descending=True).indices[:k]
    return values[best], ranks[best], indices[best]
