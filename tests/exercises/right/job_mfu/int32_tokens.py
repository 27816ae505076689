"""Token counts in the integer dtype that holds them."""

import torch
import torch.distributed as dist


def job_mfu(tokens, seconds, ranks_per_replica, flop_per_token, flop_per_s):
    n = tokens.to(torch.int32).contiguous()
    s = seconds.contiguous().clone()
    dist.all_reduce(n)
    dist.all_reduce(s, op=dist.ReduceOp.MAX)
    return n.double() / ranks_per_replica * flop_per_token / (s * flop_per_s * dist.get_world_size())
