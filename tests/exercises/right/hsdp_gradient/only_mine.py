import torch
import torch.distributed as dist


def hsdp_gradient(gradient, ranks_per_node):
    """Divides first, and takes lists."""
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = {}
    for name, members in (
        ("node", [[*range(i, i + ranks_per_node)] for i in range(0, p, ranks_per_node)]),
        ("twins", [[*range(i, p, ranks_per_node)] for i in range(ranks_per_node)]),
    ):
        for group in members:
            made = dist.new_group(group)
            if rank in group:
                mine[name] = made
    parts = [part.clone() for part in (gradient / p).chunk(ranks_per_node)]
    if len(parts) < ranks_per_node:  # no elements
        parts = [gradient.clone() for _ in range(ranks_per_node)]
    chunk = torch.zeros_like(parts[0])
    dist.reduce_scatter(chunk, parts, group=mine["node"])
    dist.all_reduce(chunk, group=mine["twins"])
    return chunk
