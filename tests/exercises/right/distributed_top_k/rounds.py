import torch
import torch.distributed as dist


def least(dtype):
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def distributed_top_k(tensor, k):
    """k rounds: each rank offers its best that is left, and the winner draws the next one."""
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.flatten()
    order = flat.argsort(descending=True, stable=True)
    drawn = 0
    values, ranks, indices = [flat[:0]], [], []
    for _ in range(k):
        left = drawn < len(order)
        mine = flat[order[drawn : drawn + 1]] if left else torch.full((1,), least(flat.dtype), dtype=flat.dtype)
        best = mine.clone()
        dist.all_reduce(best, op=dist.ReduceOp.MAX)
        same = left and bool((mine == best) | (mine.isnan() & best.isnan()))
        winner = torch.tensor([rank if same else p])
        dist.all_reduce(winner, op=dist.ReduceOp.MIN)
        place = order[drawn : drawn + 1].clone() if rank == winner else torch.empty(1, dtype=torch.int64)
        dist.broadcast(place, src=int(winner))
        drawn += int(winner) == rank
        values.append(best)
        ranks.append(int(winner))
        indices.append(int(place))
    return torch.cat(values), torch.tensor(ranks, dtype=torch.int64), torch.tensor(indices, dtype=torch.int64)
