"""Averages in the reduce_scatter.

Must get: each element of the gradient of bias, the gradient of weight and the gradient of x is 1/p times the right one on every rank
"""

import torch
import torch.distributed as dist


def gathered(x):
    whole = x.new_empty(dist.get_world_size() * len(x), *x.shape[1:])
    dist.all_gather_single(whole, x.contiguous())
    return whole


def scattered(gradient):
    mine = gradient.new_empty(len(gradient) // dist.get_world_size(), *gradient.shape[1:])
    dist.reduce_scatter_single(mine, gradient.contiguous())
    return mine


def summed(tensor):
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def both_summed(of_weight, of_bias):
    return tuple(summed(torch.stack([of_weight, of_bias])))


def function(forward, backward):
    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            return forward(*tensors)

        @staticmethod
        def backward(ctx, *gradients):
            return backward(*gradients)

    return Made.apply


def same(*tensors):
    copies = tuple(tensor.view_as(tensor) for tensor in tensors)
    return copies if len(copies) > 1 else copies[0]


def norm(x, weight, bias):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def averaged(gradient):
    return scattered(gradient) / dist.get_world_size()


def sequence_parallel_norm(x, weight, bias):
    weight, bias = function(same, both_summed)(weight, bias)
    return function(gathered, averaged)(norm(x, weight, bias))
