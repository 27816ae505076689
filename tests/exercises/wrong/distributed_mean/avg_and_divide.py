"""Divides the average once more.

Must get: divided by the number of ranks twice
"""

import torch.distributed as dist


def distributed_mean(tensor):
    total = tensor.clone().contiguous()
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    return total / dist.get_world_size()
