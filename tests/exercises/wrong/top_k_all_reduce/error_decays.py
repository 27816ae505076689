"""Lets a tenth of the error go in each step.

Must get: each element of error is 0.9 times the right one on every rank
"""

import torch
import torch.distributed as dist


def top_k_all_reduce(tensor, k, error):
    p = dist.get_world_size()
    whole = (tensor + error).reshape(-1)
    k = min(k, whole.numel())
    idx = whole.abs().topk(k).indices
    val = whole[idx]
    vals = val.new_empty(p * k)
    idxs = idx.new_empty(p * k)
    dist.all_gather_single(vals, val)
    dist.all_gather_single(idxs, idx)
    left = whole.clone()
    left[idx] = 0
    error.copy_(0.9 * left.view(tensor.shape))
    out = torch.zeros_like(whole)
    out.index_add_(0, idxs, vals)
    return out.view(tensor.shape)
