"""Everything goes to rank 0 and back: the sum is right, the way is not.

Must get: through rank 0
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    total = tensor.contiguous().clone()
    if rank == 0:
        for source in range(1, p):
            incoming = torch.empty_like(total)
            dist.recv(incoming, source)
            total += incoming
        for target in range(1, p):
            dist.send(total, target)
    else:
        dist.send(total, 0)
        dist.recv(total, 0)
    tensor.copy_(total)
