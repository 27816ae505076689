import torch
import torch.distributed as dist


def orthonormal(p):
    p = p.clone()
    for i in range(p.shape[1]):
        for j in range(i):
            p[:, i] -= (p[:, j] @ p[:, i]) * p[:, j]
        p[:, i] /= p[:, i].norm()
    return p


def power_sgd_round(matrix, q, error):
    error.add_(matrix)
    p = (error @ q).contiguous()
    dist.all_reduce(p, op=dist.ReduceOp.SUM)
    p = orthonormal(p)
    q = torch.matmul(error.t(), p).contiguous()
    q.div_(dist.get_world_size())
    dist.all_reduce(q)
    approximation = p @ q.t()
    error.sub_(approximation)
    return approximation, q
