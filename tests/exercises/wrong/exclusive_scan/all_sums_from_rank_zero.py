"""Rank 0 adds everything and sends each rank its sum.

Must get: a rank sends to one other rank in a round
Must not get: send sums
"""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    r, p = dist.get_rank(), dist.get_world_size()
    if r:
        dist.send(tensor.contiguous(), 0)
        box = torch.empty(tensor.shape, dtype=tensor.dtype)
        dist.recv(box, 0)
        return box
    running, sums = tensor.clone(memory_format=torch.contiguous_format), []
    for s in range(1, p):
        sums.append(running.clone())
        box = torch.empty_like(running)
        dist.recv(box, s)
        running = running + box
    for s in range(1, p):
        dist.send(sums[s - 1], s)
    return torch.zeros_like(tensor)
