"""Gathers into a list of one and the same tensor.

Must get: `[t] * p` makes p names of one tensor
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    index = flat.argmax().reshape(1)
    values = [torch.empty_like(flat[index])] * p
    indices = [torch.empty_like(index)] * p
    dist.all_gather(values, flat[index])
    dist.all_gather(indices, index)
    rank = int(torch.cat(values).argmax())
    return values[rank].item(), rank, indices[rank].item()
