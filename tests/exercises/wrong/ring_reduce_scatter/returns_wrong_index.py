"""Starts one chunk too late.

Must get: the chunk that is complete on rank r is another one
Must not get: nothing was added
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    c = [x.clone().contiguous() for x in tensor.tensor_split(p)]
    for s in range(p - 1):
        i, j = (r - s) % p, (r - s - 1) % p
        buf = torch.empty_like(c[j])
        q = dist.isend(c[i], (r + 1) % p)
        dist.recv(buf, (r - 1) % p)
        q.wait()
        c[j] += buf
    return c[r]
