"""Divides by the number of ranks.

Must get: each element of what is returned is 1/p times the right one on every rank
"""

import torch
import torch.distributed as dist


def top_k_all_reduce(tensor, k, error):
    p = dist.get_world_size()
    wanted = (tensor + error).flatten()
    k = min(k, wanted.numel())
    indices = wanted.abs().topk(k).indices
    values = wanted[indices]
    all_values = [torch.empty_like(values) for _ in range(p)]
    all_indices = [torch.empty_like(indices) for _ in range(p)]
    dist.all_gather(all_values, values)
    dist.all_gather(all_indices, indices)
    wanted[indices] = 0
    error.copy_(wanted.reshape(error.shape))
    total = torch.zeros_like(wanted)
    for v, i in zip(all_values, all_indices, strict=True):
        total[i] += v
    return (total / p).reshape(tensor.shape)
