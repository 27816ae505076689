"""Makes the other side float too.

Must get: counts are whole numbers
"""

import torch
import torch.distributed as dist


def count_samples(samples):
    mine = torch.tensor([float(len(samples))])
    counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, mine)
    return torch.cat(counts)
