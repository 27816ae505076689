"""The target's logit by MAX, with zeros where it is not.

Must get: the target's logit was reduced with MAX
"""

import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    w = logits.shape[1]
    r = dist.get_rank()
    top = logits.amax(1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    total = (logits - top[:, None]).exp().sum(1)
    dist.all_reduce(total)
    here = (targets // w) == r
    x = logits.gather(1, (targets % w)[:, None]).squeeze(1) * here
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return total.log() + top - x
