"""Says rank 0 where a rank has fewer than k values.

Must get: every value is said to be rank 0's
Must not get: other indices
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1)
    kk = min(k, flat.numel())
    v, i = flat.sort(descending=True, stable=True)
    mine = torch.full((kk,), rank if kk == k else 0)
    v, i = v[:kk].contiguous(), i[:kk].contiguous()
    out = []
    for t in (v, i, mine):
        parts = [torch.empty_like(t) for _ in range(p)]
        dist.all_gather(parts, t)
        out.append(torch.cat(parts))
    v, i, r = out
    v, at = v.sort(descending=True, stable=True)
    return v[:k], r[at][:k], i[at][:k]
