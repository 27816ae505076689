"""The mean of the ranks' own MFUs.

Must get: mean of the ranks' shares
"""

import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    total, slowest = tokens.double().contiguous(), seconds.clone().contiguous()
    flop = total / ranks_per_replica * flop_per_token
    share = flop / (slowest * flop_per_s)
    dist.all_reduce(share)
    return share / dist.get_world_size()
