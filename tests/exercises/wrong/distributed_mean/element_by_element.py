"""One all_reduce for every element.

Must get: once is enough
"""

import torch.distributed as dist


def distributed_mean(tensor):
    mean = tensor.reshape(-1).clone()
    for i in range(mean.numel()):
        dist.all_reduce(mean[i : i + 1])
    return (mean / dist.get_world_size()).reshape(tensor.shape)
