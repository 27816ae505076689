"""Asks nobody.

Must get: own count only
"""

import torch
import torch.distributed as dist


def count_samples(samples):
    return torch.tensor([len(samples)] * dist.get_world_size())
