"""Every rank makes every group, but its own node's before the others.

Must get: every group, in one order
"""

import torch
import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p = dist.get_rank(), dist.get_world_size()
    own = rank // ranks_per_node
    order = [own] + [i for i in range(p // ranks_per_node) if i != own]
    nodes = {i: dist.new_group(list(range(i * ranks_per_node, (i + 1) * ranks_per_node))) for i in order}
    rails = [dist.new_group(list(range(i, p, ranks_per_node))) for i in range(ranks_per_node)]
    n = tensor.numel()
    length = -(-n // ranks_per_node)
    padded = torch.nn.functional.pad(tensor.reshape(-1), (0, length * ranks_per_node - n))
    mine = padded.new_empty(length)
    dist.reduce_scatter_tensor(mine, padded, group=nodes[own])
    dist.all_reduce(mine, group=rails[rank % ranks_per_node])
    dist.all_gather_into_tensor(padded, mine, group=nodes[own])
    tensor.copy_(padded[:n].view_as(tensor))
