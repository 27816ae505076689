"""Fills a rank with fewer than k values up with -infinity, which wins where all values are.

Must get: is returned more than once
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    p = dist.get_world_size()
    flat = tensor.flatten()
    own = torch.sort(flat, descending=True, stable=True).indices[:k]
    low = float("-inf") if flat.dtype.is_floating_point else torch.iinfo(flat.dtype).min
    v = torch.full((k,), low, dtype=flat.dtype)
    i = torch.zeros(k, dtype=torch.int64)
    v[: len(own)] = flat[own]
    i[: len(own)] = own
    vs = [torch.empty_like(v) for _ in range(p)]
    js = [torch.empty_like(i) for _ in range(p)]
    dist.all_gather(vs, v)
    dist.all_gather(js, i)
    vs, js = torch.cat(vs), torch.cat(js)
    best = torch.sort(vs, descending=True, stable=True).indices[:k]
    return vs[best], best // max(k, 1), js[best]
