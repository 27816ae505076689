"""Calls the collective itself.

Must get: forbids: all_reduce
"""

import torch.distributed as dist


def recursive_doubling_all_reduce(tensor):
    total = tensor.contiguous().clone()
    dist.all_reduce(total)
    tensor.copy_(total)
