"""Makes P orthonormal, then adds.

Must get: so reduce first
Must not get: is right
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    wanted = matrix + error
    p = torch.linalg.qr(wanted @ q).Q.contiguous()
    dist.all_reduce(p)
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
