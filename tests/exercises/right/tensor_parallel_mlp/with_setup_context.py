import torch
import torch.distributed as dist


class Conjugate(torch.autograd.Function):
    """f and g in one: the sum is taken forward, or backward."""

    @staticmethod
    def forward(tensor, when):
        return Conjugate.maybe_sum(tensor, when == "forward")

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.when = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return Conjugate.maybe_sum(gradient, ctx.when == "backward"), None

    @staticmethod
    def maybe_sum(tensor, wanted):
        copy = tensor.clone(memory_format=torch.contiguous_format)
        if wanted:
            dist.all_reduce(copy)
        return copy


def tensor_parallel_mlp(x, a_shard, b_shard):
    hidden = torch.nn.functional.relu(Conjugate.apply(x, "backward").matmul(a_shard))
    return Conjugate.apply(hidden.matmul(b_shard), "forward")
