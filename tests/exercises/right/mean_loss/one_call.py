import torch
import torch.distributed as dist


def mean_loss(loss, count):
    both = torch.stack([loss, count])
    dist.all_reduce(both)
    return both[0] / both[1]
