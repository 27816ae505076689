"""Puts the late chunk first.

Must get: wrong order
"""

import torch
import torch.distributed as dist


def to_zigzag(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    have = dict(zip((2 * rank, 2 * rank + 1), tensor.contiguous().chunk(2), strict=True))
    parts, works = {}, []
    for r in range(p):
        for chunk in (r, 2 * p - 1 - r):
            if r == rank and chunk in have:
                parts[chunk] = have[chunk]
            elif r == rank:
                parts[chunk] = torch.empty_like(have[2 * rank])
                works.append(dist.irecv(parts[chunk], chunk // 2, tag=chunk))
            elif chunk in have:
                works.append(dist.isend(have[chunk].contiguous(), r, tag=chunk))
    for work in works:
        work.wait()
    return torch.cat([parts[2 * p - 1 - rank], parts[rank]])
