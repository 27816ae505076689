"""Forward is right, so the loss looks normal; the gradient of x lacks the other ranks' parts.

Must get: the gradient of x is this rank's part only
"""

import torch
import torch.distributed as dist


def summed(tensor):
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def function(forward, backward):
    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return forward(x)

        @staticmethod
        def backward(ctx, gradient):
            return backward(gradient)

    return Made.apply


def same(tensor):
    return tensor.view_as(tensor)


def tensor_parallel_mlp(x, a_shard, b_shard):
    g = function(summed, same)
    return g(torch.relu(x @ a_shard) @ b_shard)
