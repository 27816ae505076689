"""Averages with all_reduce, as without ZeRO.

Must get: forbids: all_reduce
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    with torch.no_grad():
        for parameter in parameters:
            mean = parameter.grad.clone()
            dist.all_reduce(mean)
            parameter -= lr * mean / dist.get_world_size()
