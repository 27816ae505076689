"""Gram and Schmidt before the all_reduce.

Must get: reduce first
"""

import torch
import torch.distributed as dist


def columns(p):
    done = []
    for c in p.unbind(1):
        for _ in range(2):
            for d in done:
                c = c - (c @ d) * d
        done.append(c / c.norm())
    return torch.stack(done, 1)


def power_sgd_round(matrix, q, error):
    whole = matrix + error
    p = (whole @ q).contiguous()
    p = columns(p)
    dist.all_reduce(p)
    new = (whole.T @ p).contiguous() / dist.get_world_size()
    dist.all_reduce(new)
    made = p @ new.T
    error.copy_(whole - made)
    return made, new
