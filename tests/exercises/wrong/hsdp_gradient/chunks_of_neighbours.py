"""Takes ranks next to each other for those with the same chunk.

Must get: all_reduce ran over ranks that stand next to each other
"""

import torch
import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    p, r, g = dist.get_world_size(), dist.get_rank(), ranks_per_node
    for i in range(p // g):
        members = list(range(i * g, (i + 1) * g))
        group = dist.new_group(members)
        if r in members:
            node = group
    for j in range(g):
        members = list(range(j * (p // g), (j + 1) * (p // g)))
        group = dist.new_group(members)
        if r in members:
            across = group
    chunk = torch.empty(gradient.numel() // g, dtype=gradient.dtype)
    dist.reduce_scatter_single(chunk, gradient.contiguous(), group=node)
    dist.all_reduce(chunk, group=across)
    return chunk / p
