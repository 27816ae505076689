"""Calls the collective itself.

Must get: forbids: all_reduce
"""

import torch.distributed as dist


def ring_all_reduce(tensor):
    total = tensor.contiguous()
    dist.all_reduce(total)
    tensor.copy_(total)
