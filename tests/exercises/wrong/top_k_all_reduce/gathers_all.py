"""Gathers the whole vectors and chooses for everybody.

Must get: a vector that is mostly zeros costs as much
"""

import torch
import torch.distributed as dist


def top_k_all_reduce(tensor, k, error):
    p = dist.get_world_size()
    wanted = (tensor + error).flatten()
    k = min(k, wanted.numel())
    everybody = [torch.empty_like(wanted) for _ in range(p)]
    dist.all_gather(everybody, wanted)
    wanted[wanted.abs().topk(k).indices] = 0
    error.copy_(wanted.reshape(error.shape))
    total = torch.zeros_like(wanted)
    for v in everybody:
        i = v.abs().topk(k).indices
        total[i] += v[i]
    return total.reshape(tensor.shape)
