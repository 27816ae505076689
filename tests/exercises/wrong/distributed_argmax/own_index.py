"""Returns the index of its own maximum with the value and the rank of the largest.

Must get: the index is that of each rank's own maximum
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    flat = tensor.reshape(-1)
    i = flat.argmax().reshape(1)
    if flat.is_floating_point() and flat.isnan().any():
        i = flat.isnan().nonzero()[0]
    else:
        i = (flat == flat[i]).nonzero()[0]
    v = flat[i].contiguous()
    p = dist.get_world_size()
    vs = [torch.empty_like(v) for _ in range(p)]
    js = [torch.empty_like(i) for _ in range(p)]
    dist.all_gather(vs, v)
    dist.all_gather(js, i.contiguous())
    best = 0
    for q in range(1, p):
        if vs[best].isnan().item():
            break
        if vs[q].isnan().item() or vs[q].item() > vs[best].item():
            best = q
    return vs[best].item(), best, int(i.item())
