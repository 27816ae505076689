"""The distances go round a ring.

Must get: must not be added
"""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    window = tensor.clone(memory_format=torch.contiguous_format)
    below = torch.zeros_like(window)
    distance = 1
    while distance < p:
        ops, arrived = [], torch.zeros_like(window)
        ops.append(dist.P2POp(dist.isend, tensor.contiguous(), (rank + distance) % p))
        ops.append(dist.P2POp(dist.irecv, arrived, (rank - distance) % p))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        below = below + arrived
        distance += 1
    return below
