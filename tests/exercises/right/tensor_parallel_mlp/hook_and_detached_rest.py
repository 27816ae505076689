import torch
import torch.distributed as dist


def tensor_parallel_mlp(x, a_shard, b_shard):
    """A hook in place of f, and in place of g a sum that autograd sees as the own part plus a constant."""
    copied = x.view_as(x)

    def add(gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient

    copied.register_hook(add)
    part = torch.relu(copied @ a_shard) @ b_shard
    total = part.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return part + (total - part.detach())
