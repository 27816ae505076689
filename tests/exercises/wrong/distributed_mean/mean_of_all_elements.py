"""Takes the mean over the elements too.

Must get: the mean over the elements too
Must not get: reshape
"""

import torch
import torch.distributed as dist


def distributed_mean(tensor):
    t = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(t)
    return t.mean() / dist.get_world_size()
