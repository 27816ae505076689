"""The mean over all elements of all ranks in every place.

Must get: the mean over the elements too
"""

import torch
import torch.distributed as dist


def distributed_mean(tensor):
    mean = tensor.mean().reshape(1)
    dist.all_reduce(mean)
    return torch.full_like(tensor, (mean / dist.get_world_size()).item())
