"""The mean of nothing is NaN, and NaN spreads.

Must get: probably the mean of no samples is NaN
"""

import torch
import torch.distributed as dist


def mean_of_samples(samples):
    mean = samples.mean() * len(samples)
    both = torch.stack([mean, samples.new_tensor(len(samples))])
    dist.all_reduce(both)
    return both[0] / both[1]
