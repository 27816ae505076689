"""Takes ranks that are equally far apart for a node.

Must get: reduce_scatter ran over ranks of different nodes
"""

import torch
import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    p, r, g = dist.get_world_size(), dist.get_rank(), ranks_per_node
    for i in range(p // g):
        members = list(range(i, p, p // g))
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
