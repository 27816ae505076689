"""Rows and gradients travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: only x is gathered
"""

import torch
import torch.distributed as dist


def ga(x):
    d = x.double().contiguous()
    out = torch.empty(dist.get_world_size() * d.shape[0], d.shape[1], dtype=d.dtype)
    dist.all_gather_into_tensor(out, d)
    return out.to(x.dtype)


class L(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return ga(x) @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = torch.empty(x.shape, dtype=torch.float64)
        dist.reduce_scatter_tensor(gx, (g @ w.T).double().contiguous())
        return gx.to(x.dtype), ga(x).T @ g


def sequence_parallel_linear(x, w):
    return L.apply(x, w)
