"""Uses P as it comes.

Must get: the columns of P are not orthonormal
"""

import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = wanted @ q
    dist.all_reduce(p)
    p /= dist.get_world_size()
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
