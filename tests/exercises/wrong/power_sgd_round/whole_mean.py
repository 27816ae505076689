"""Reduces the whole matrix.

Must get: the whole mean was reduced
"""

import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    result = wanted.contiguous().clone()
    dist.all_reduce(result)
    result /= dist.get_world_size()
    new_q = q.clone()
    error.copy_(wanted - result)
    return result, new_q
