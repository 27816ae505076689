"""Each rank keeps another one of several groups of all ranks.

Must get: in another group
Must get: Ranks meet only in one and the same group
"""

import torch
import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    for n in range(p // g):
        group = dist.new_group(list(range(n * g, n * g + g)))
        if n == rank // g:
            inside = group
    for c in range(g):
        group = dist.new_group(list(range(p)))
        if c == rank % g:
            across = group
    chunk = torch.empty(len(gradient) // g, dtype=gradient.dtype)
    dist.reduce_scatter_single(chunk, gradient.contiguous(), group=inside)
    dist.all_reduce(chunk, group=across)
    return chunk / p
