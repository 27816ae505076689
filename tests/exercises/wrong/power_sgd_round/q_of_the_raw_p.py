"""Makes Q with P as the all_reduce left it, before QR.

Must get: Q was made with P before its columns were orthonormal
"""

import torch
import torch.distributed as dist


def power_sgd_round(matrix, q, error):
    m = matrix + error
    p = m @ q
    dist.all_reduce(p)
    new_q = m.T @ p
    p, _ = torch.linalg.qr(p)
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    approximation = p @ new_q.T
    error.copy_(m - approximation)
    return approximation, new_q
