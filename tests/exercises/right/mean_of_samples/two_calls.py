import torch
import torch.distributed as dist


def mean_of_samples(samples):
    total, count = samples.sum(), torch.tensor(len(samples))
    dist.all_reduce(total)
    dist.all_reduce(count)
    return total / count
