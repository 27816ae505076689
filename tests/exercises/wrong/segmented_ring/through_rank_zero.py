"""Sends everything to rank 0, which adds, and returns the sum: in segments, but all through one rank.

Must get: times the lower bound
"""

import torch
import torch.distributed as dist


def segmented_ring(tensor, add):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    for part in flat.tensor_split(4):
        if rank:
            dist.send(part, 0)
            dist.recv(part, 0)
            continue
        arrived = torch.empty_like(part)
        for peer in range(1, p):
            dist.recv(arrived, peer)
            add(part, arrived)
        for peer in range(1, p):
            dist.send(part, peer)
    tensor.copy_(flat.view(tensor.shape))
