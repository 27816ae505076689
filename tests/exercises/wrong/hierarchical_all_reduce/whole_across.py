"""Reduces inside the node, then the whole vector across.

Must get: but 2(m-1)/m x n/g
"""

import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)]
    rails = [dist.new_group(list(range(place, p, g))) for place in range(g)]
    total = tensor.contiguous().clone()
    dist.all_reduce(total, group=nodes[rank // g])
    dist.all_reduce(total, group=rails[rank % g])
    tensor.copy_(total)
