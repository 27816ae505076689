"""Adds in float64 between the nodes.

Must get: sends float64, but the tensor is float32
"""

import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)]
    across = [dist.new_group(list(range(local, p, g))) for local in range(g)]
    chunk = gradient.new_empty(gradient.numel() // g)
    dist.reduce_scatter_single(chunk, gradient.contiguous(), group=nodes[rank // g])
    chunk = chunk.double()
    dist.all_reduce(chunk, group=across[rank % g])
    return (chunk / p).to(gradient.dtype)
