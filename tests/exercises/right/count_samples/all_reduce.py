import torch
import torch.distributed as dist


def count_samples(samples):
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    counts[dist.get_rank()] = len(samples)
    dist.all_reduce(counts)
    return counts
