"""Forgets to divide.

Must get: the sum instead of the mean
"""

import torch.distributed as dist


def distributed_mean(tensor):
    total = tensor.clone().contiguous()
    dist.all_reduce(total)
    return total
