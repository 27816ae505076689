"""Forgets to divide.

Must get: sum of the ranks' means
"""

import torch.distributed as dist


def mean_loss(loss, count):
    mean = (loss / count).contiguous()
    dist.all_reduce(mean)
    return mean
