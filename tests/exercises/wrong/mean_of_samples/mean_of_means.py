"""An empty rank brings zero, and counts.

Must get: an empty rank counting as zero
"""

import torch.distributed as dist


def mean_of_samples(samples):
    mean = samples.mean() if len(samples) else samples.new_zeros(())
    dist.all_reduce(mean)
    return mean / dist.get_world_size()
