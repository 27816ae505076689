"""Averages the gradient of x, as data parallelism does.

Must get: each element of the gradient of x is 1/p times the right one on every rank
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
    f = function(same, lambda gradient: summed(gradient) / dist.get_world_size())
    g = function(summed, same)
    return g(torch.relu(f(x) @ a_shard) @ b_shard)
