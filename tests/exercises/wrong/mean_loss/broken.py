"""As it was.

Must get: last rank's loss was added to the others' counts
"""

import torch
import torch.distributed as dist


def mean_loss(loss, count):
    pair = [loss.clone(memory_format=torch.contiguous_format), count.clone(memory_format=torch.contiguous_format)]
    order = (0, 1) if dist.get_rank() < dist.get_world_size() - 1 else (1, 0)
    for i in order:
        dist.all_reduce(pair[i])
    return pair[0] / pair[1]
