"""All-reduces a vector that is mostly zeros.

Must get: a vector that is mostly zeros costs as much
"""

import torch
import torch.distributed as dist


def top_k_all_reduce(tensor, k, error):
    wanted = (tensor + error).flatten()
    k = min(k, wanted.numel())
    indices = wanted.abs().topk(k).indices
    values = wanted[indices]
    wanted[indices] = 0
    error.copy_(wanted.reshape(error.shape))
    total = torch.zeros_like(wanted)
    total[indices] = values
    dist.all_reduce(total)
    return total.reshape(tensor.shape)
