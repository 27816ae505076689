"""Gives the gradient to the wire as it comes: where x is transposed, so is its gradient.

Must get: transposed
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


def raw(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient


def tensor_parallel_mlp(x, a_shard, b_shard):
    f, g = function(same, raw), function(summed, same)
    return g(torch.relu(f(x) @ a_shard) @ b_shard)
