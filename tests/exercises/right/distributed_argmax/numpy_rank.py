import numpy as np
import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.flatten()
    index = int(np.argmax(flat.tolist()))
    values = [torch.empty((), dtype=tensor.dtype) for _ in range(p)]
    indices = [torch.empty((), dtype=torch.int64) for _ in range(p)]
    dist.all_gather(values, flat[index].clone())
    dist.all_gather(indices, torch.tensor(index))
    rank = np.argmax([value.item() for value in values])  # the first of equals, and NaN first
    return values[rank].item(), rank, indices[rank].item()
