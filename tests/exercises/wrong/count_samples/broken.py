"""As it was.

Must get: different dtypes
"""

import torch
import torch.distributed as dist


def count_samples(samples):
    mine = torch.tensor([len(samples)])
    counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, mine)
    return torch.cat(counts)
