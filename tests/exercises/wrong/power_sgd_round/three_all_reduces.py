"""Reduces Q twice.

Must get: two are enough
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = wanted @ q
    dist.all_reduce(p)
    p = torch.linalg.qr(p).Q.contiguous()
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    dist.all_reduce(new_q, op=dist.ReduceOp.AVG)
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
