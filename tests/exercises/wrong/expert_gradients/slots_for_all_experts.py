"""One buffer over all ranks with a place for each rank's experts: ep times the bytes.

Must get: go among
"""

import torch
import torch.distributed as dist


def expert_gradients(dense, experts, ep):
    rank, p = dist.get_rank(), dist.get_world_size()
    for x in [*dense, *experts]:
        x.grad = torch.zeros_like(x) if x.grad is None else x.grad
    for x in dense:
        dist.all_reduce(x.grad)
        x.grad /= p
    for x in experts:
        slots = torch.zeros(ep, x.numel(), dtype=x.dtype)
        slots[rank % ep] = x.grad.flatten()
        dist.all_reduce(slots)
        x.grad.copy_((slots[rank % ep] / p).view(x.shape))
