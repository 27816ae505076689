"""Right on ranks with samples, and a mean of nothing on the others.

Must get: wrong value
Must not get: the mean of no samples is NaN, and so is every sum with it
Must not get: the mean of the ranks
"""

import torch
import torch.distributed as dist


def mean_of_samples(samples):
    both = torch.stack([samples.sum(), samples.new_tensor(len(samples))])
    dist.all_reduce(both)
    return both[0] / both[1] if len(samples) else samples.mean()
