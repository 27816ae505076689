"""Saves the gathered rows.

Must get: gathers x only once
"""

import torch
import torch.distributed as dist


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        rows = gathered(x)
        ctx.save_for_backward(rows, w)
        ctx.count = len(x)
        return rows @ w

    @staticmethod
    def backward(ctx, gradient):
        rows, w = ctx.saved_tensors
        parts = (gradient @ w.T).contiguous()
        own = torch.empty(ctx.count, rows.shape[1], dtype=rows.dtype)
        dist.reduce_scatter_tensor(own, parts)
        return own, rows.T @ gradient


def gathered(x):
    """The rows of all ranks."""
    rows = torch.empty(dist.get_world_size() * len(x), x.shape[1], dtype=x.dtype)
    dist.all_gather_into_tensor(rows, x.contiguous())
    return rows


def sequence_parallel_linear(x, w):
    return GatheredLinear.apply(x, w)
