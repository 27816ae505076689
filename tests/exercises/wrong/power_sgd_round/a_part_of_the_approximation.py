"""Subtracts a part of the approximation.

Must get: only the p-th part of the approximation
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    world = dist.get_world_size()
    m = matrix + error
    p = m @ q
    dist.all_reduce(p)
    p = torch.linalg.qr(p).Q
    new_q = (m.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q = new_q / world
    result = p @ new_q.T
    error.copy_(m - result / world)
    return result, new_q
