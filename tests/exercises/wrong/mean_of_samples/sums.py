"""Forgets to divide.

Must get: sum instead of the mean
"""

import torch.distributed as dist


def mean_of_samples(samples):
    total = samples.sum()
    dist.all_reduce(total)
    return total
