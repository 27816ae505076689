"""Makes P orthonormal and then reduces it.

Must get: reduce first
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = wanted @ q
    p = torch.linalg.qr(p).Q.contiguous()
    dist.all_reduce(p)
    p /= dist.get_world_size()
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
