"""Forgets the all_gather inside the node.

Must get: the all_gather inside the node is missing
"""

import torch
import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(f, f + g))) for f in range(0, p, g)]
    places = [dist.new_group(list(range(i, p, g))) for i in range(g)]
    n = tensor.numel()
    length = -(-n // g)
    padded = torch.zeros(g * length, dtype=tensor.dtype)
    padded[:n] = tensor.flatten()
    mine = torch.empty(length, dtype=tensor.dtype)
    dist.reduce_scatter_tensor(mine, padded, group=nodes[rank // g])
    dist.all_reduce(mine, group=places[rank % g])
    place = rank % g
    padded[place * length : (place + 1) * length] = mine
    tensor.copy_(padded[:n].view(tensor.shape))
