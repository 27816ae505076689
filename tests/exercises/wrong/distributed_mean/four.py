"""Divides by a number.

Must get: divided by 4, whatever the number of ranks
"""

import torch.distributed as dist


def distributed_mean(tensor):
    total = tensor.clone().contiguous()
    dist.all_reduce(total)
    return total / 4
