"""Never waits.

Must get: never waited
"""

import torch
import torch.distributed as dist


def hand_out(table):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        row = torch.empty_like(table[0])
        dist.recv(row, 0)
        return row
    for peer in range(1, p):
        dist.isend(table[peer], peer)
    return table[0].clone()
