"""Adds and sends in float32, whatever the dtype is.

Must get: right only to the precision of a narrower dtype
Must not get: of its own arguments only
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    v, total, got = (rank - dst) % p, tensor.float().contiguous().clone(), torch.empty(tensor.shape)
    far = 1 << max(p - 1, 0).bit_length() >> 1
    while far and p > 1:
        if far <= v < 2 * far:
            dist.send(total, (rank - far) % p)
            return
        if v < far and v + far < p:
            dist.recv(got, (rank + far) % p)
            total = total + got
        far //= 2
    if v == 0:
        tensor.copy_(total)
