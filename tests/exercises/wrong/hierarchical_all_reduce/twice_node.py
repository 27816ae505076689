"""Sums the node twice.

Must get: ranks_per_node times the right one
"""

import torch.distributed as dist

_G = {}


def hierarchical_all_reduce(tensor, ranks_per_node):
    p, r, g = dist.get_world_size(), dist.get_rank(), ranks_per_node
    mine = None
    for n in range(p // g):
        grp = dist.new_group(list(range(n * g, n * g + g)))
        if r // g == n:
            mine = grp
    t = tensor.clone().contiguous()
    dist.all_reduce(t, group=mine)
    dist.all_reduce(t)
    tensor.copy_(t)
