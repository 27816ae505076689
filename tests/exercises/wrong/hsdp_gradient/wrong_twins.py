"""All-reduces with the ranks that follow, not with those of the same number in other nodes.

Must get: wrong
"""

import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)]
    m = p // g
    across = [dist.new_group(list(range(first, first + m))) for first in range(0, p, m)]
    chunk = gradient.new_empty(gradient.numel() // g)
    dist.reduce_scatter_single(chunk, gradient.contiguous(), group=nodes[rank // g])
    dist.all_reduce(chunk, group=across[rank // m])
    return chunk / p
