"""The sum in every place.

Must get: the sum of the counts in every place
"""

import torch
import torch.distributed as dist


def count_samples(samples):
    n = torch.tensor([len(samples)])
    dist.all_reduce(n)
    return n.repeat(dist.get_world_size())
