"""Takes the maximum of the tokens too.

Must get: the largest number of tokens counts for every replica
"""

import torch
import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    p = dist.get_world_size()
    both = torch.stack([tokens.double(), seconds])
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return both[0] * (p // ranks_per_replica) * flop_per_token / (both[1] * flop_per_s * p)
