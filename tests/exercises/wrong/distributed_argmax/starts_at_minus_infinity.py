"""Nothing is larger than -infinity where all is -infinity.

Must get: nothing but -infinity
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    index = flat.argmax()
    values = [torch.empty(1, dtype=flat.dtype) for _ in range(p)]
    indices = [torch.empty(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(values, flat[index].reshape(1))
    dist.all_gather(indices, index.reshape(1))
    best, rank = float("-inf"), -1
    for r, value in enumerate(v.item() for v in values):
        if value > best or (value != value and best == best):
            best, rank = value, r
    return best, rank, indices[rank].item()
