"""Averages everything over all ranks, as without experts.

Must get: which hold different experts
"""

import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    p = dist.get_world_size()
    for parameters, group in ((dense, None), (experts, None)):
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= p
