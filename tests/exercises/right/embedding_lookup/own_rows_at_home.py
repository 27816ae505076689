import torch
import torch.distributed as dist


def embedding_lookup(ids: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
    """Rows of the own shard never travel."""
    rank, p, rows = dist.get_rank(), dist.get_world_size(), shard.size(0)
    result = shard.new_zeros((ids.numel(), shard.size(1)))
    mine = torch.div(ids, rows, rounding_mode="floor") == rank
    result[mine] = shard[ids[mine] - rank * rows]
    abroad = ids[~mine].unique(sorted=True)
    give = (abroad // rows).bincount(minlength=p)
    take = torch.zeros_like(give)
    dist.all_to_all_single(take, give)
    g, t = give.tolist(), take.tolist()
    queries = abroad.new_empty(sum(t))
    dist.all_to_all_single(queries, abroad, output_split_sizes=t, input_split_sizes=g)
    replies = shard.new_empty((len(abroad), shard.size(1)))
    dist.all_to_all_single(replies, shard[queries - rank * rows], output_split_sizes=g, input_split_sizes=t)
    result[~mine] = replies[torch.searchsorted(abroad, ids[~mine].contiguous())]
    return result
