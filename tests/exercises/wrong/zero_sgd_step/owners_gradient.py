"""Updates its shard with its own gradient, then gathers.

Must get: updated with its owner's gradient only
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()
    data = torch.cat([parameter.data.flatten() for parameter in parameters])
    gradient = torch.cat([parameter.grad.flatten() for parameter in parameters])
    size = -(-data.numel() // p)
    data, gradient = (torch.nn.functional.pad(v, (0, size * p - v.numel())) for v in (data, gradient))
    mine = slice(rank * size, (rank + 1) * size)
    dist.all_gather_into_tensor(data, data[mine] - lr * gradient[mine])
    pieces = data[: sum(parameter.numel() for parameter in parameters)].split([q.numel() for q in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.data.copy_(piece.view_as(parameter))
