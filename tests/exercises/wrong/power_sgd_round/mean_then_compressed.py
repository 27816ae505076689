"""Reduces the whole matrix, and approximates at home.

Must get: P has n r
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    mean = wanted.contiguous().clone()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    p = torch.linalg.qr(mean @ q).Q.contiguous()
    new_q = mean.T @ p
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
