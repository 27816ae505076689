"""The indices are places in each rank's own top k.

Must get: the indices are places in each rank's own top k
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    order = torch.argsort(flat, descending=True, stable=True)[:k]
    count = len(order)
    values = torch.zeros(k, dtype=tensor.dtype)
    values[:count] = flat[order]
    indices = torch.full((k,), -1, dtype=torch.int64)
    indices[:count] = order
    all_values = [torch.empty_like(values) for _ in range(p)]
    all_indices = [torch.empty_like(indices) for _ in range(p)]
    dist.all_gather(all_values, values)
    dist.all_gather(all_indices, indices)
    values, indices = torch.cat(all_values), torch.cat(all_indices)
    ranks = torch.arange(p).repeat_interleave(k)
    real = indices >= 0
    values, indices, ranks = values[real], indices[real], ranks[real]
    best = torch.argsort(values, descending=True, stable=True)[:k]
    return values[best], ranks[best], best % k
