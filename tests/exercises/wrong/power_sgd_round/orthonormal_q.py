"""Orthonormal q in the place of orthonormal P.

Must get: the columns of q were made orthonormal
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    world = dist.get_world_size()
    m = matrix + error
    p = m @ torch.linalg.qr(q).Q
    dist.all_reduce(p)
    new_q = (m.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q = new_q / world
    result = p @ new_q.T
    error.copy_(m - result)
    return result, new_q
