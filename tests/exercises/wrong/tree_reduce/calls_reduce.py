"""Calls the collective itself.

Must get: forbids: reduce
"""

import torch.distributed as dist


def tree_reduce(tensor, dst):
    total = tensor.contiguous().clone()
    dist.reduce(total, dst)
    if dist.get_rank() == dst:
        tensor.copy_(total)
