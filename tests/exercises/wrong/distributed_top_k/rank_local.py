"""Every rank says its own number.

Must get: each rank says that all of them are its own
Must not get: ties
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    p = dist.get_world_size()
    flat = tensor.contiguous().flatten()
    v, i = torch.sort(flat, descending=True, stable=True)
    vs = [torch.empty_like(v) for _ in range(p)]
    is_ = [torch.empty_like(i) for _ in range(p)]
    dist.all_gather(vs, v)
    dist.all_gather(is_, i)
    v, i = torch.cat(vs), torch.cat(is_)
    o = torch.argsort(v, descending=True, stable=True)[:k]
    return v[o], torch.full((len(o),), dist.get_rank()), i[o]
