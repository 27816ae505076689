"""Ignores the error of earlier rounds.

Must get: the error of earlier rounds is not used
Must not get: is right
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix.clone()
    p = wanted @ q
    dist.all_reduce(p)
    p = torch.linalg.qr(p).Q.contiguous()
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
