"""Each rank makes only its own groups.

Must get: every rank calls it for every group
"""

import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = {rank // g: dist.new_group(list(range(rank // g * g, rank // g * g + g)))}
    across = {rank % g: dist.new_group(list(range(rank % g, p, g)))}
    chunk = gradient.new_empty(gradient.numel() // g)
    dist.reduce_scatter_single(chunk, gradient.contiguous(), group=nodes[rank // g])
    dist.all_reduce(chunk, group=across[rank % g])
    return chunk / p
