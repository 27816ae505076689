"""NaN is never larger than anything.

Must get: NaN was ignored
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    index = flat.nan_to_num(-torch.inf, torch.inf).argmax() if flat.is_floating_point() else flat.argmax()
    values = [torch.empty(1, dtype=tensor.dtype) for _ in range(p)]
    indices = [torch.empty(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(values, flat[index].reshape(1).contiguous())
    dist.all_gather(indices, index.reshape(1))
    rank = int(torch.cat(values).argmax())
    return values[rank].item(), rank, int(indices[rank])
