"""A rank sends its share of the k largest and one more, but all k may be its own.

Must get: fewer than k candidates of each rank took part
Must not get: ties go to
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    m = min(-(-k // p) + 1, flat.numel()) if k else 0
    values, order = torch.sort(flat, descending=True, stable=True)
    values, order = values[:m].contiguous(), order[:m].contiguous()
    vs, ix = [torch.empty_like(values) for _ in range(p)], [torch.empty_like(order) for _ in range(p)]
    dist.all_gather(vs, values)
    dist.all_gather(ix, order)
    values, where = torch.sort(torch.cat(vs), descending=True, stable=True)
    values, where = values[:k], where[:k]
    return values, where // max(m, 1), torch.cat(ix)[where]
