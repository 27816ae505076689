"""Its own rank and index with the global maximum.

Must get: each rank's own rank and index
"""

import torch.distributed as dist


def distributed_argmax(tensor):
    flat = tensor.contiguous().flatten()
    i = int(flat.argmax())
    v = flat[i].clone().reshape(1)
    dist.all_reduce(v, op=dist.ReduceOp.MAX)
    return v.item(), dist.get_rank(), i
