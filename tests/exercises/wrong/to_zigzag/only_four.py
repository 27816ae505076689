"""A table for four ranks.

Must get: p = 4
"""

import torch
import torch.distributed as dist

PAIRS = [(0, 7), (1, 6), (2, 5), (3, 4)]


def to_zigzag(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    if p == 1:
        return tensor.clone()
    have = {2 * rank + i: c.contiguous() for i, c in enumerate(tensor.contiguous().chunk(2))}
    parts, works = [], []
    for to, pair in enumerate(PAIRS[:p]):
        for chunk in pair:
            if to == rank and chunk in have:
                parts.append(have[chunk])
            elif to == rank and chunk // 2 < p:
                parts.append(torch.empty_like(have[2 * rank]))
                works.append(dist.irecv(parts[-1], chunk // 2, tag=chunk))
            elif chunk in have:
                works.append(dist.isend(have[chunk], to, tag=chunk))
    for work in works:
        work.wait()
    return torch.cat(parts) if len(parts) == 2 else tensor.clone()
