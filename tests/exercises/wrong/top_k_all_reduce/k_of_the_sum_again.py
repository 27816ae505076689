"""Takes the k largest of the sum again.

Must get: only the k largest elements of the sum were returned
Must not get: was never received
"""

import torch
import torch.distributed as dist


def top_k_all_reduce(tensor, k, error):
    p = dist.get_world_size()
    full = (tensor + error).reshape(-1)
    k = min(k, full.numel())
    index = full.abs().topk(k).indices
    value = full[index]
    rest = full.clone()
    rest[index] = 0
    error.copy_(rest.view(error.shape))
    values = [torch.empty_like(value) for _ in range(p)]
    indices = [torch.empty_like(index) for _ in range(p)]
    dist.all_gather(values, value)
    dist.all_gather(indices, index)
    total = torch.zeros_like(full)
    for i, v in zip(indices, values, strict=False):
        total.index_add_(0, i, v)
    j = total.abs().topk(k).indices
    t2 = torch.zeros_like(total)
    t2[j] = total[j]
    return t2.view(tensor.shape)
