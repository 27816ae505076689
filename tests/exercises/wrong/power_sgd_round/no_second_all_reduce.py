"""Each rank uses a Q of its own.

Must get: the second all_reduce is missing
Must not get: is right
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = wanted @ q
    dist.all_reduce(p)
    p = torch.linalg.qr(p).Q.contiguous()
    new_q = (wanted.T @ p).contiguous()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
