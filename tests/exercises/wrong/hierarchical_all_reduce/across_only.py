"""Forgets the step inside the node.

Must get: sum across nodes only
"""

import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    rails = [dist.new_group(list(range(place, p, g))) for place in range(g)]
    total = tensor.contiguous().clone()
    dist.all_reduce(total, group=rails[rank % g])
    tensor.copy_(total)
