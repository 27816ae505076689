"""The index in the last dimension.

Must get: the index is that in the last dimension
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    i = flat.argmax().view(1)
    v = flat[i]
    i = i % tensor.shape[-1]
    vs = torch.empty(p, dtype=v.dtype)
    js = torch.empty(p, dtype=torch.int64)
    dist.all_gather_into_tensor(vs, v)
    dist.all_gather_into_tensor(js, i)
    b = vs.argmax()
    return vs[b].item(), int(b), js[b].item()
