"""Adds all at once with +=, which adds a repeated index once.

Must get: index_add_
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
    total[torch.cat(all_indices)] += torch.cat(all_values)
    return total.reshape(tensor.shape)
