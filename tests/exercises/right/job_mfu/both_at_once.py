import torch
import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    """The first rank of a replica brings its tokens, the others zeros; both calls are under way together."""
    counts = tokens.to(torch.float64).contiguous()
    if dist.get_rank() % ranks_per_replica:
        counts = torch.zeros_like(counts)
    else:
        counts = counts.clone()
    longest = seconds.contiguous().clone()
    works = [dist.all_reduce(counts, async_op=True), dist.all_reduce(longest, op=dist.ReduceOp.MAX, async_op=True)]
    for work in works:
        work.wait()
    peak = dist.get_world_size() * flop_per_s
    return counts * flop_per_token / longest / peak
