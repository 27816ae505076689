"""The sums are each rank's own.

Must get: of its own arguments only: nothing of the other ranks is in it
Must not get: maximum and sum must be
"""

import torch
import torch.distributed as dist


def distributed_softmax(logits):
    m = logits.amax(-1, keepdim=True).contiguous()
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    e = torch.exp(logits - m)
    return e / e.sum(-1, keepdim=True)
