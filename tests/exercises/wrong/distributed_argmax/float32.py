"""Sends values as float32.

Must get: the value travelled as float32 and lost digits
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    index = flat.argmax()
    values = [torch.empty(1, dtype=torch.float32) for _ in range(p)]
    indices = [torch.empty(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(values, flat[index].reshape(1).float())
    dist.all_gather(indices, index.reshape(1))
    rank = int(torch.cat(values).argmax())
    return values[rank].item(), rank, int(indices[rank])
