"""Keeps one buffer for all calls and returns it.

Must get: result of the first call was changed by the second
"""

import torch
import torch.distributed as dist

_kept = {}


def distributed_mean(tensor):
    kept = _kept.setdefault((tensor.shape, tensor.dtype), torch.empty(tensor.shape, dtype=tensor.dtype))
    kept.copy_(tensor)
    dist.all_reduce(kept)
    kept /= dist.get_world_size()
    return kept
