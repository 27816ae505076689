"""The mean of the rank's own elements; what the all_reduce brought is not used.

Must get: the mean of the elements of the rank's own tensor: it must be elementwise
"""

import torch.distributed as dist


def distributed_mean(tensor):
    total = tensor.clone().contiguous()
    dist.all_reduce(total)
    return tensor.mean()
