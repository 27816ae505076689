"""Everybody sends to dst.

Must get: rounds
Must get: through rank
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor.contiguous(), dst)
        return
    total = tensor.contiguous().clone()
    for source in range(p):
        if source != dst:
            incoming = torch.empty_like(total)
            dist.recv(incoming, source)
            total += incoming
    tensor.copy_(total)
