import torch
import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    p = dist.get_world_size()
    grid = torch.arange(p).view(-1, ranks_per_node)
    node, _ = dist.new_subgroups_by_enumeration(grid.tolist())
    twins, _ = dist.new_subgroups_by_enumeration(grid.T.tolist())
    flat = gradient.clone(memory_format=torch.contiguous_format)
    out = flat.new_zeros(flat.numel() // ranks_per_node)
    dist.reduce_scatter_single(out, flat, group=node, async_op=True).wait()
    if p > ranks_per_node:
        dist.all_reduce(out, group=twins, async_op=True).wait()
    out /= p
    return out
