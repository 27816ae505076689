"""Averages in float64 and forgets to go back.

Must get: the dtype was promoted
"""

import torch
import torch.distributed as dist


def distributed_mean(tensor):
    total = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64).contiguous()
    dist.all_reduce(total)
    return total / dist.get_world_size()
