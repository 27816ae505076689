"""Counts in int32.

Must get: at most: What rank 0 returned has dtype int32; it must be int64
Must not get: dtype of the input
"""

import torch
import torch.distributed as dist


def count_samples(samples):
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int32)
    dist.all_gather_into_tensor(counts, torch.tensor([len(samples)], dtype=torch.int32))
    return counts
