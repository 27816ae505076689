"""Makes both groups, but gives the node's one to all_reduce too.

Must get: all_reduce ran over the ranks of a node
"""

import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)]
    [dist.new_group(list(range(j, p, g))) for j in range(g)]
    node = nodes[rank // g]
    chunk = gradient.new_empty(gradient.numel() // g)
    dist.reduce_scatter_single(chunk, gradient.contiguous(), group=node)
    dist.all_reduce(chunk, group=node)
    return chunk / p
