"""Adds the seconds.

Must get: ranks work at the same time
"""

import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    total, slowest = tokens.double().contiguous(), seconds.clone().contiguous()
    dist.all_reduce(total)
    dist.all_reduce(slowest)
    flop = total / ranks_per_replica * flop_per_token
    return flop / (slowest * dist.get_world_size() * flop_per_s)
