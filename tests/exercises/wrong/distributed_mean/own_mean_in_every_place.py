"""The mean of the rank's own elements in every place.

Must get: the mean of the elements of the rank's own tensor: it must be elementwise
"""

import torch
import torch.distributed as dist


def distributed_mean(tensor):
    total = tensor.clone().contiguous()
    dist.all_reduce(total)
    return torch.full_like(tensor, tensor.mean())
