"""`clamp(min=0)` for relu: its slope differs at 0 only."""

import torch
import torch.distributed as dist


class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        whole = gradient.contiguous().clone()
        dist.all_reduce(whole)
        return whole


class G(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part):
        whole = part.contiguous().clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def tensor_parallel_mlp(x, a_shard, b_shard):
    return G.apply((F.apply(x) @ a_shard).clamp(min=0) @ b_shard)
