"""Gives all_reduce the gradient itself, which may have gaps.

Must get: has gaps
"""

import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    p, r = dist.get_world_size(), dist.get_rank()
    same = [dist.new_group(list(range(i, p, ep))) for i in range(ep)]
    for group, params in ((None, dense), (same[r % ep], experts)):
        for x in params:
            if x.grad is None:
                x.grad = torch.zeros_like(x)
            dist.all_reduce(x.grad, group=group)
            x.grad.div_(p)
