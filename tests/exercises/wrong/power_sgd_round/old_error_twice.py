"""Adds to the old error.

Must get: the old error is in error twice
Must get: error on rank 0 has
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
    error += wanted - result
    return result, new_q
