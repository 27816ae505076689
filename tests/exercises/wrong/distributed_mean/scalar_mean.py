"""The mean over the elements as well.

Must get: it must be elementwise
"""

import torch.distributed as dist


def distributed_mean(tensor):
    total = tensor.clone().contiguous()
    dist.all_reduce(total)
    return total.mean() / dist.get_world_size()
