"""Passes everything along.

Must get: only rank 0 has what
"""

import torch
import torch.distributed as dist


def hand_out(table):
    rank, p = dist.get_rank(), dist.get_world_size()
    row = table[0].clone()
    if rank > 0:
        dist.recv(row, rank - 1)
    if rank == 0:
        for peer in range(1, p):
            dist.send(table[peer].contiguous(), 1)
        return table[0].clone()
    for _ in range(rank + 1, p):
        following = torch.empty_like(row)
        dist.recv(following, rank - 1)
        dist.send(following, rank + 1)
    return row
