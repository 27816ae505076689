"""Makes Q of the matrix alone.

Must get: the error of earlier rounds is missing in Q
Must not get: is right
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = (wanted @ q).contiguous()
    dist.all_reduce(p)
    p = torch.linalg.qr(p).Q
    new_q = (matrix.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
