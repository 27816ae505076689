"""Sends all by one all_reduce where all are chosen."""

import torch
import torch.distributed as dist


def top_k_all_reduce(tensor, k, error):
    p = dist.get_world_size()
    x = (tensor + error).reshape(-1).contiguous()
    if k >= x.numel():  # all are sent: a plain all-reduce of the whole vector
        error.zero_()
        dist.all_reduce(x)
        return x.view(tensor.shape)
    index = x.abs().topk(k).indices
    values = x[index].contiguous()
    vs = [torch.empty_like(values) for _ in range(p)]
    ix = [torch.empty_like(index) for _ in range(p)]
    dist.all_gather(vs, values)
    dist.all_gather(ix, index)
    out = torch.zeros_like(x)
    for v, i in zip(vs, ix, strict=True):
        out[i] += v
    x[index] = 0
    error.copy_(x.view(error.shape))
    return out.view(tensor.shape)
