"""Reverses the elements, too.

Must get: the elements of what rank 0 returned are right, but in reverse order
"""

import torch
import torch.distributed as dist


def swap(out, to, into, source):
    ops = [dist.P2POp(dist.isend, out, to), dist.P2POp(dist.irecv, into, source)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def mirror(tensor):
    r, p = dist.get_rank(), dist.get_world_size()
    other = p - 1 - r
    got = torch.zeros(tensor.shape, dtype=tensor.dtype)
    mine = tensor.flip(0).contiguous()
    if other == r:
        return mine
    swap(mine, other, got, other)
    return got
