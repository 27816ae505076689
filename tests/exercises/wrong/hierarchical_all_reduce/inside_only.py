"""Forgets the step between the nodes.

Must get: sum of the node only
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
    node, _ = groups_of(p, g)
    n = tensor.numel()
    length = -(-n // g)
    padded = torch.nn.functional.pad(tensor.reshape(-1), (0, length * g - n)).contiguous()
    shard = torch.empty(length, dtype=tensor.dtype)
    dist.reduce_scatter_tensor(shard, padded, group=node)
    dist.all_gather_into_tensor(padded, shard, group=node)
    tensor.copy_(padded[:n].view(tensor.shape))
