"""Divides with //.

Must get: rounded down to whole numbers
"""

import torch.distributed as dist


def distributed_mean(tensor):
    t = tensor.clone().contiguous()
    dist.all_reduce(t)
    if t.is_complex():
        return t / dist.get_world_size()
    return t // dist.get_world_size()
