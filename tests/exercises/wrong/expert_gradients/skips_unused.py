"""Skips a parameter without a gradient: the other ranks wait for it.

Must get: rank 1
"""

import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    rank, p = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(place, p, ep))) for place in range(ep)]
    for parameters, group in ((dense, None), (experts, groups[rank % ep])):
        for parameter in parameters:
            if parameter.grad is None:
                continue
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= p
