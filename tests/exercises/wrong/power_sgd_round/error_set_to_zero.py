"""Forgets what is missing.

Must get: error was set to zero
Must not get: still zero
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = (wanted @ q).contiguous()
    dist.all_reduce(p)
    p = torch.linalg.qr(p).Q
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.zero_()
    return result, new_q
