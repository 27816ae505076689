"""Divides each column by its length.

Must get: but are not at right angles
Must not get: is right
"""

import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = (wanted @ q).contiguous()
    dist.all_reduce(p)
    p = p / p.norm(dim=0)
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
