"""Receives what is folded and does not add it.

Must get: without what it received from rank 2
"""

import torch
import torch.distributed as dist


def recursive_doubling_all_reduce(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    m = 1 << (p.bit_length() - 1)
    work = tensor.clone().contiguous()
    if r >= m:
        dist.send(work, r - m)
        return
    if r + m < p:
        b = torch.empty_like(work)
        dist.recv(b, r + m)
    mask = 1
    while mask < m:
        b = torch.empty_like(work)
        h = dist.isend(work.clone(), r ^ mask)
        dist.recv(b, r ^ mask)
        h.wait()
        work += b
        mask *= 2
    tensor.copy_(work)
