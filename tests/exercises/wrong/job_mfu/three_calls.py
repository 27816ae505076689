"""Counts the ranks with a call, too.

Must get: two are enough
"""

import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    total, slowest = tokens.double().contiguous(), seconds.clone().contiguous()
    dist.all_reduce(total)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    ones = total.new_ones(len(total))
    dist.all_reduce(ones)
    flop = total / ranks_per_replica * flop_per_token
    return flop / (slowest * dist.get_world_size() * flop_per_s)
