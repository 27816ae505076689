"""Works in its inputs.

Must get: an input was overwritten
"""

import torch.distributed as dist


def mean_loss(loss, count):
    both = [loss.contiguous(), count.contiguous()]
    dist.all_reduce(both[0])
    dist.all_reduce(both[1])
    return both[0] / both[1]
