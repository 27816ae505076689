"""The counts travel as float32.

Must get: counts are whole numbers, so send them in an integer dtype
"""

import torch
import torch.distributed as dist


def count_samples(samples):
    p = dist.get_world_size()
    out = torch.empty(p)
    dist.all_gather_into_tensor(out, torch.tensor([float(len(samples))]))
    return out.long()
