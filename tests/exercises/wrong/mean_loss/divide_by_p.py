"""Divides by p once more.

Must get: 1/p times the right one
"""

import torch.distributed as dist


def mean_loss(loss, count):
    total, c = loss.clone().contiguous(), count.clone().contiguous()
    dist.all_reduce(total)
    dist.all_reduce(c)
    return total / c / dist.get_world_size()
