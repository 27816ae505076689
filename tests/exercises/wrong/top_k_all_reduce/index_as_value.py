"""Sends the indices in the dtype of the values.

Must get: send them in a dtype of their own
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
    dist.all_gather(all_values, values)
    as_values = [torch.empty_like(values) for _ in range(p)]
    dist.all_gather(as_values, indices.to(values.dtype))
    all_indices = [i.long().clamp(max=wanted.numel() - 1) for i in as_values]
    wanted[indices] = 0
    error.copy_(wanted.reshape(error.shape))
    total = torch.zeros_like(wanted)
    for v, i in zip(all_values, all_indices, strict=True):
        total[i] += v
    return total.reshape(tensor.shape)
