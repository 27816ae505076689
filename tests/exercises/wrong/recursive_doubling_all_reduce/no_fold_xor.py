"""The partner may not exist.

Must get: fold first
Must not get: modulo
"""

import torch
import torch.distributed as dist


def recursive_doubling_all_reduce(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    work = tensor.clone().contiguous()
    mask = 1
    while mask < p:
        q = r ^ mask
        buf = torch.empty_like(work)
        h = dist.isend(work.clone(), q)
        dist.recv(buf, q)
        h.wait()
        work += buf
        mask *= 2
    tensor.copy_(work)
