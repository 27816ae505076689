"""The index travels as float64.

Must get: send values in the tensor's own dtype, and indices and counts in an integer dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def rp():
    return dist.get_rank(), dist.get_world_size()


def distributed_argmax(tensor):
    _rank, p = rp()
    flat = tensor.reshape(-1)
    i = flat.argmax()
    i = (
        flat.isnan().int().argmax()
        if flat.is_floating_point() and flat.isnan().any()
        else (flat == flat[i]).int().argmax()
    )
    v = flat[i].reshape(1)
    vs = [torch.empty_like(v) for _ in range(p)]
    js = torch.empty(p, dtype=torch.float64)
    dist.all_gather(vs, v)
    dist.all_gather_into_tensor(js, i.double().reshape(1))
    vs = torch.cat(vs)
    b = (
        int(vs.isnan().int().argmax())
        if vs.is_floating_point() and vs.isnan().any()
        else int((vs == vs.max()).int().argmax())
    )
    return vs[b].item(), b, int(js[b])
