import torch
import torch.distributed as dist


class SumBackward(torch.autograd.Function):
    forward = staticmethod(lambda ctx, t: t.view_as(t))

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient


class Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = dist.get_world_size()
        whole = torch.empty(p, *x.shape, dtype=x.dtype)
        dist.all_gather_into_tensor(whole, x.contiguous())
        return whole.flatten(0, 1)

    @staticmethod
    def backward(ctx, gradient):
        p = dist.get_world_size()
        mine = torch.empty(gradient.shape[0] // p, *gradient.shape[1:], dtype=gradient.dtype)
        dist.reduce_scatter_tensor(mine, gradient.contiguous())
        return mine


def sequence_parallel_norm(x, weight, bias):
    """Both parameters in one tensor, so that they have one gradient."""
    both = SumBackward.apply(torch.stack([weight, bias]))
    normal = torch.nn.functional.layer_norm(x, x.shape[1:])
    return Collect.apply(normal * both[0] + both[1])
