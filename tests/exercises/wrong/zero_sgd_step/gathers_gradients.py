"""Gathers all gradients on all ranks.

Must get: gathers whole gradients
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    with torch.no_grad():
        for parameter in parameters:
            gradients = [torch.empty_like(parameter.grad) for _ in range(dist.get_world_size())]
            dist.all_gather(gradients, parameter.grad.contiguous())
            parameter -= lr * torch.stack(gradients).mean(0)
