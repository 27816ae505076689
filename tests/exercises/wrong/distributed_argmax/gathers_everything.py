"""Gathers every element.

Must get: 16 bytes
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.reshape(-1).contiguous()
    counts = [torch.empty(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(counts, torch.tensor([flat.numel()]))
    longest = int(max(counts))
    low = -torch.inf if flat.is_floating_point() else torch.iinfo(flat.dtype).min
    padded = torch.full((longest,), low, dtype=flat.dtype)
    padded[: flat.numel()] = flat
    tensors = [torch.empty_like(padded) for _ in range(p)]
    dist.all_gather(tensors, padded)
    best = int(torch.cat(tensors).argmax())
    return torch.cat(tensors)[best].item(), best // longest, best % longest
