"""Each rank makes the two groups that it is in, and no other.

Must get: every group, in one order
"""

import torch
import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p = dist.get_rank(), dist.get_world_size()
    first = rank // ranks_per_node * ranks_per_node
    node = dist.new_group(list(range(first, first + ranks_per_node)))
    rail = dist.new_group(list(range(rank % ranks_per_node, p, ranks_per_node)))
    n = tensor.numel()
    length = -(-n // ranks_per_node)
    padded = torch.nn.functional.pad(tensor.reshape(-1), (0, length * ranks_per_node - n))
    mine = padded.new_empty(length)
    dist.reduce_scatter_tensor(mine, padded, group=node)
    dist.all_reduce(mine, group=rail)
    dist.all_gather_into_tensor(padded, mine, group=node)
    tensor.copy_(padded[:n].view_as(tensor))
