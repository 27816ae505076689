"""One share for all steps.

Must get: each step has a share
"""

import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    total, slowest = tokens.double().contiguous(), seconds.clone().contiguous()
    dist.all_reduce(total)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    flop = total.sum() / ranks_per_replica * flop_per_token
    return total * 0 + flop / (slowest.sum() * dist.get_world_size() * flop_per_s)
