"""The all_reduce runs over all ranks.

Must get: all_reduce ran over all ranks
"""

import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)]
    chunk = gradient.new_empty(gradient.numel() // g)
    dist.reduce_scatter_single(chunk, gradient.contiguous(), group=nodes[rank // g])
    dist.all_reduce(chunk)
    return chunk / p
