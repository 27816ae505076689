"""The groups across the nodes step by the number of nodes.

Must get: Only right if the number of nodes equals the number of ranks per node
"""

import torch
import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p = dist.get_rank(), dist.get_world_size()
    m = p // ranks_per_node
    nodes = [dist.new_group(list(range(f, f + ranks_per_node))) for f in range(0, p, ranks_per_node)]
    rails = [dist.new_group(list(range(i, p, m))) for i in range(m)]
    n = tensor.numel()
    length = -(-n // ranks_per_node)
    padded = torch.nn.functional.pad(tensor.reshape(-1), (0, length * ranks_per_node - n))
    mine = padded.new_empty(length)
    dist.reduce_scatter_tensor(mine, padded, group=nodes[rank // ranks_per_node])
    dist.all_reduce(mine, group=rails[rank % m])
    dist.all_gather_into_tensor(padded, mine, group=nodes[rank // ranks_per_node])
    tensor.copy_(padded[:n].view_as(tensor))
