"""Only where g divides the size.

Must get: the elements beyond the last whole multiple of ranks_per_node were left out
"""

import torch
import torch.distributed as dist


def groups_of(p, g):
    """Every rank makes all groups, in the same order."""
    me, nodes, rails = dist.get_rank(), [], []
    for first in range(0, p, g):
        nodes.append(dist.new_group(list(range(first, first + g))))
    for place in range(g):
        rails.append(dist.new_group(list(range(place, p, g))))
    return nodes[me // g], rails[me % g]


def hierarchical_all_reduce(tensor, ranks_per_node):
    p, g = dist.get_world_size(), ranks_per_node
    node, rail = groups_of(p, g)
    n = tensor.numel()
    length = n // g
    padded = tensor.reshape(-1)[: length * g].clone()
    shard = torch.empty(length, dtype=tensor.dtype)
    dist.reduce_scatter_tensor(shard, padded, group=node)
    dist.all_reduce(shard, group=rail)
    dist.all_gather_into_tensor(padded, shard, group=node)
    tensor.view(-1)[: length * g] = padded
