"""The numbers of tokens travel as float32.

Must get: sends float32, but the tensor is float64
"""

import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    n = tokens.float().contiguous()
    s = seconds.contiguous().clone()
    dist.all_reduce(n)
    dist.all_reduce(s, op=dist.ReduceOp.MAX)
    return n.double() / ranks_per_replica * flop_per_token / (s * flop_per_s * dist.get_world_size())
