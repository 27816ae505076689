"""int32 is not what was asked for.

Must get: dtype
"""

import torch
import torch.distributed as dist


def count_samples(samples):
    counts = [torch.empty(1, dtype=torch.int32) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(samples)], dtype=torch.int32))
    return torch.cat(counts)
