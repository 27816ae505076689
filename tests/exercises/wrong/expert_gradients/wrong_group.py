"""Adds the experts in groups of ep ranks in a row.

Must get: the gradients of different experts were added
"""

import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    rank, p = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(first, first + ep))) for first in range(0, p, ep)]
    for parameters, group in ((dense, None), (experts, groups[rank // ep])):
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= p
