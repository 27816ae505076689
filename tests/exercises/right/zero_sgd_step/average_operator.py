import torch
import torch.distributed as dist


class Flat:
    """Tensors side by side, padded to a multiple of p."""

    def __init__(self, tensors, p):
        self.count = sum(t.numel() for t in tensors)
        self.values = torch.zeros(-(-self.count // p) * p, dtype=tensors[0].dtype)
        self.values[: self.count] = torch.cat([t.flatten() for t in tensors])


def zero_sgd_step(parameters, lr):
    p = dist.get_world_size()
    weights = Flat([x.data for x in parameters], p).values
    gradients = Flat([x.grad for x in parameters], p).values
    shard = weights.view(p, -1)[dist.get_rank()].clone()
    mean = torch.empty_like(shard)
    dist.reduce_scatter_tensor(mean, gradients, op=dist.ReduceOp.AVG)
    shard.sub_(mean, alpha=lr)
    everything = torch.empty_like(weights)
    work = dist.all_gather_into_tensor(everything, shard, async_op=True)
    work.wait()
    offset = 0
    for x in parameters:
        x.data.copy_(everything[offset : offset + x.numel()].reshape(x.shape))
        offset += x.numel()
