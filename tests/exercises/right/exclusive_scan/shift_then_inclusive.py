import math

import torch
import torch.distributed as dist


def move(x, to, frm):
    p = dist.get_world_size()
    box = torch.zeros_like(x) if frm >= 0 else None
    works = ([dist.isend(x, to)] if to < p else []) + ([dist.irecv(box, frm)] if frm >= 0 else [])
    for w in works:
        w.wait()
    return box


def exclusive_scan(tensor):
    r, p = dist.get_rank(), dist.get_world_size()
    x = move(tensor.contiguous(), r + 1, r - 1)
    x = torch.zeros(tensor.shape, dtype=tensor.dtype) if x is None else x
    for i in range(math.ceil(math.log2(p)) if p > 1 else 0):
        came = move(x, r + 2**i, r - 2**i)
        if came is not None:
            x = x + came
    return x
