import torch
import torch.distributed as dist


def summed(tensor):
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


class CopyForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return summed(gradient)


class SumForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part):
        return summed(part)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def tensor_parallel_mlp(x, a_shard, b_shard):
    hidden = torch.relu(CopyForward.apply(x) @ a_shard)
    return SumForward.apply(hidden @ b_shard)
