"""Only the first rank of each node speaks for it.

Must get: as if it sent for its whole node
"""

import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)]
    leaders = dist.new_group(list(range(0, p, g)))
    total = tensor.contiguous().clone()
    first = rank // g * g
    dist.reduce(total, first, group=nodes[rank // g])
    if rank == first:
        dist.all_reduce(total, group=leaders)
    dist.broadcast(total, first, group=nodes[rank // g])
    tensor.copy_(total)
