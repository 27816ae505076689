"""The maximum instead of the sum.

Must get: all_reduce with MAX (line
"""

import torch.distributed as dist


def distributed_mean(tensor):
    t = tensor.clone().contiguous()
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t
