"""Adds the gradient of x twice, the second time divided by the number of ranks.

Must get: two are enough
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
    f = function(same, lambda gradient: summed(summed(gradient) / dist.get_world_size()))
    g = function(summed, same)
    return g(torch.relu(f(x) @ a_shard) @ b_shard)
