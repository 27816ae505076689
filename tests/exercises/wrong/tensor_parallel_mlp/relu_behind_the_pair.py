"""The activation comes after the pair, not inside it.

Must get: relu is applied to the result, not to x A
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
    f, g = function(same, summed), function(summed, same)
    return torch.relu(g(f(x) @ a_shard @ b_shard))
