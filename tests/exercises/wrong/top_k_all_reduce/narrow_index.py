"""Sends the indices in int16.

Must get: int16 on the wire (line 18) holds no number above 32767
"""

import torch
import torch.distributed as dist


def top_k_all_reduce(tensor, k, error):
    p = dist.get_world_size()
    wanted = (tensor + error).flatten()
    k = min(k, wanted.numel())
    indices = wanted.abs().topk(k).indices
    values = wanted[indices]
    all_values, all_indices = values.new_empty(p * k), torch.empty(p * k, dtype=torch.int16)
    dist.all_gather_single(all_values, values)
    dist.all_gather_single(all_indices, indices.short())
    total = torch.zeros_like(wanted)
    total.index_add_(0, all_indices.long(), all_values)
    wanted[indices] = 0
    error.copy_(wanted.view(error.shape))
    return total.view(tensor.shape)
