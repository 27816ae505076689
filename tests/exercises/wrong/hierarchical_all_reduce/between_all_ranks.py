"""The all_reduce between the nodes has no group, so ranks with different parts are added.

Must get: its group has one rank of each node
Must not get: off by one chunk
"""

import torch
import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    g = ranks_per_node
    r, p = dist.get_rank(), dist.get_world_size()
    nodes = [dist.new_group(list(range(i, i + g))) for i in range(0, p, g)]
    _ = {j: dist.new_group(list(range(j, p, g))[::-1]) for j in range(g)}
    inside = nodes[r // g]
    n = tensor.numel()
    pad = -n % g
    flat = torch.nn.functional.pad(tensor.reshape(-1), (0, pad)).contiguous()
    if flat.data_ptr() == tensor.data_ptr():
        flat = flat.clone()
    mine = torch.empty(flat.numel() // g, dtype=flat.dtype)
    dist.reduce_scatter_tensor(mine, flat, group=inside)
    dist.all_reduce(mine)
    dist.all_gather_into_tensor(flat, mine, group=inside)
    tensor.copy_(flat[:n].view(tensor.shape))
