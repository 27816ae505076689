"""Only right in float32.

Must get: float32
"""

import torch
import torch.distributed as dist


def mean_of_samples(samples):
    total = torch.tensor([float(samples.sum()), float(len(samples))])
    dist.all_reduce(total)
    return total[0] / total[1]
