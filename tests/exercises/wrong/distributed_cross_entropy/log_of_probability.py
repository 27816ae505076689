"""Stable sums, and the logarithm of a probability that is zero.

Must get: the logarithm of a probability that was rounded to 0
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    """The logarithm of the target's probability, which may be zero."""
    width = logits.shape[1]
    top = logits.amax(1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    parts = (logits - top[:, None]).exp()
    columns = torch.arange(width) + dist.get_rank() * width
    mine = (parts * (columns == targets[:, None])).sum(1)
    both = torch.stack([parts.sum(1), mine])
    dist.all_reduce(both)
    return -torch.log(both[1] / both[0])
