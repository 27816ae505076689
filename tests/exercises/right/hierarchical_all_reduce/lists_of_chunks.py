import torch
import torch.distributed as dist


def hierarchical_all_reduce(tensor: torch.Tensor, ranks_per_node: int) -> None:
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    subgroups = {}
    for members in [range(i, i + g) for i in range(0, p, g)] + [range(i, p, g) for i in range(g)]:
        subgroups[tuple(members)] = dist.new_group(ranks=list(members))
    inside = subgroups[tuple(range(rank // g * g, rank // g * g + g))]
    across = subgroups[tuple(range(rank % g, p, g))]
    n = tensor.numel()
    rows = torch.zeros((g, -(-n // g)), dtype=tensor.dtype)
    rows.view(-1)[:n] = tensor.flatten()
    mine = rows[0].clone()
    dist.reduce_scatter(mine, list(rows), group=inside)
    dist.all_reduce(mine, group=across)
    collected = [torch.empty_like(mine) for _ in range(g)]
    dist.all_gather(collected, mine, group=inside)
    tensor.copy_(torch.cat(collected)[:n].reshape(tensor.shape))
