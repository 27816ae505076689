"""Each rank has a P of its own.

Must get: the first all_reduce is missing
Must not get: is right
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = wanted @ q
    p = torch.linalg.qr(p).Q.contiguous()
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
