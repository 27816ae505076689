"""Chunks of tensor_split, which reduce_scatter can't take.

Must get: all must have equally many: pad
"""

import torch
import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(f, f + g))) for f in range(0, p, g)]
    places = [dist.new_group(list(range(i, p, g))) for i in range(g)]
    flat = tensor.flatten()
    chunks = [c.clone() for c in flat.tensor_split(g)]
    mine = torch.empty_like(chunks[rank % g])
    dist.reduce_scatter(mine, chunks, group=nodes[rank // g])
    dist.all_reduce(mine, group=places[rank % g])
    dist.all_gather(chunks, mine, group=nodes[rank // g])
    tensor.copy_(torch.cat(chunks).view(tensor.shape))
