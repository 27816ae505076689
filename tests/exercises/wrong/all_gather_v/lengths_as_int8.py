"""Sends numbers of rows as int8, and reads them back as if they had no sign.

Must get: the two lengths differ by a multiple of 256, and numbers were sent as int8
"""

import torch
import torch.distributed as dist


def swap(out, to, into, source):
    ops = [dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, source)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def all_gather_v(tensor):
    r, p = dist.get_rank(), dist.get_world_size()
    right, left = (r + 1) % p, (r - 1) % p
    sizes = [None] * p
    sizes[r] = torch.tensor([len(tensor)]).to(torch.int8)
    for s in range(p - 1):
        sizes[(r - s - 1) % p] = torch.empty(1, dtype=torch.int8)
        swap(sizes[(r - s) % p], right, sizes[(r - s - 1) % p], left)
    parts = [torch.empty((int(n) & 255, *tensor.shape[1:]), dtype=tensor.dtype) for n in sizes]
    parts[r] = tensor.contiguous()
    for s in range(p - 1):
        swap(parts[(r - s) % p], right, parts[(r - s - 1) % p], left)
    return parts
