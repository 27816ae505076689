import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    """The mean of the parameters travels, not the differences."""
    flat = torch.cat([x.reshape(-1) for x in parameters]) / dist.get_world_size()
    dist.all_reduce(flat)
    start = 0
    for x, a, m in zip(parameters, anchor, momentum, strict=True):
        mean = flat[start : start + x.numel()].view(x.shape)
        start += x.numel()
        step = a - mean
        m.copy_(beta * m + step)
        a.copy_(a - lr * step - lr * beta * m)
        x.copy_(a)
