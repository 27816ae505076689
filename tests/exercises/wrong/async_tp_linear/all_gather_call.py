"""Uses the collective itself.

Must get: send, recv, isend, irecv
"""

import torch
import torch.distributed as dist


def async_tp_linear(x, multiply):
    p = dist.get_world_size()
    rows = [torch.empty_like(x.contiguous()) for _ in range(p)]
    dist.all_gather(rows, x.contiguous())
    return torch.cat([multiply(piece) for piece in rows])
