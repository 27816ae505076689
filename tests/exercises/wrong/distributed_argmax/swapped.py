"""(value, index, rank).

Must get: rank and index are swapped
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    i = flat.argmax().view(1)
    v = flat[i]
    vs = torch.empty(p, dtype=v.dtype)
    js = torch.empty(p, dtype=torch.int64)
    dist.all_gather_into_tensor(vs, v)
    dist.all_gather_into_tensor(js, i)
    b = int(vs.argmax())
    return vs[b].item(), js[b].item(), b
