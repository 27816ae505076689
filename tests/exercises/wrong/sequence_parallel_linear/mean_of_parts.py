"""The mean of the parts.

Must get: the gradient of x is 1/p times the right one on every rank
"""

import torch
import torch.distributed as dist


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return gathered(x) @ w

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        parts = (gradient @ w.T).contiguous()
        own = torch.empty(x.shape, dtype=x.dtype)
        dist.reduce_scatter_tensor(own, parts)
        return own / dist.get_world_size(), gathered(x).T @ gradient


def gathered(x):
    """The rows of all ranks."""
    rows = torch.empty(dist.get_world_size() * len(x), x.shape[1], dtype=x.dtype)
    dist.all_gather_into_tensor(rows, x.contiguous())
    return rows


def sequence_parallel_linear(x, w):
    return GatheredLinear.apply(x, w)
