"""The indices travel as float64.

Must get: send values in the tensor's own dtype, and indices and counts in an integer dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def rp():
    return dist.get_rank(), dist.get_world_size()


def distributed_top_k(tensor, k):
    _rank, p = rp()
    flat = tensor.reshape(-1)
    kk = min(k, flat.numel())
    v, i = flat.sort(descending=True, stable=True)
    v, i = v[:kk].contiguous(), i[:kk].double().contiguous()
    vs = [torch.empty_like(v) for _ in range(p)]
    js = [torch.empty_like(i) for _ in range(p)]
    dist.all_gather(vs, v)
    dist.all_gather(js, i)
    v, i = torch.cat(vs), torch.cat(js).long()
    r = torch.arange(p).repeat_interleave(kk)
    v, at = v.sort(descending=True, stable=True)
    return v[:k], r[at][:k], i[at][:k]
