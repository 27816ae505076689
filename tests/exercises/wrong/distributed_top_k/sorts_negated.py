"""Sorts the negated values, so NaN comes last.

Must get: NaN was passed over
Must not get: absolute
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    m = min(k, flat.numel())
    order = torch.sort(-flat, stable=True).indices[:m].contiguous()
    values = flat[order].contiguous()
    vs, ix = [torch.empty_like(values) for _ in range(p)], [torch.empty_like(order) for _ in range(p)]
    dist.all_gather(vs, values)
    dist.all_gather(ix, order)
    values = torch.cat(vs)
    where = torch.sort(-values, stable=True).indices[:k]
    return values[where], where // max(m, 1), torch.cat(ix)[where]
