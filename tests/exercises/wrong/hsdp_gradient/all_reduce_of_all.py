"""All-reduces the whole gradient over all ranks.

Must get: calls all_reduce inside its node
"""

import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)]
    [dist.new_group(list(range(local, p, g))) for local in range(g)]
    chunk = gradient.new_empty(gradient.numel() // g)
    whole = gradient.contiguous().clone()
    dist.all_reduce(whole)
    chunk = whole.view(g, -1)[rank % g]
    return chunk / p
