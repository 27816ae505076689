"""Sums the losses only.

Must get: counts were never summed
"""

import torch.distributed as dist


def mean_loss(loss, count):
    loss = loss.contiguous().clone()
    dist.all_reduce(loss)
    return loss / count
