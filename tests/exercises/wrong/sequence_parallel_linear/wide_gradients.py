"""The gradient of x travels as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
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
        parts = (gradient @ w.T).double().contiguous()
        own = torch.empty(x.shape, dtype=torch.float64)
        dist.reduce_scatter_tensor(own, parts)
        return own.to(x.dtype), gathered(x).T @ gradient


def gathered(x):
    """The rows of all ranks."""
    rows = torch.empty(dist.get_world_size() * len(x), x.shape[1], dtype=x.dtype)
    dist.all_gather_into_tensor(rows, x.contiguous())
    return rows


def sequence_parallel_linear(x, w):
    return GatheredLinear.apply(x, w)
