"""Divides the experts' sum by ep twice.

Must get: divided by ep twice
Must not get: once by the number of all ranks is right
"""

import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    rank, p = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(i, p, ep))) for i in range(ep)]
    for w in list(dense) + list(experts):
        if w.grad is None:
            w.grad = torch.zeros_like(w)
    for w in dense:
        dist.all_reduce(w.grad)
        w.grad /= p
    for w in experts:
        dist.all_reduce(w.grad, group=groups[rank % ep])
        w.grad /= ep * ep
