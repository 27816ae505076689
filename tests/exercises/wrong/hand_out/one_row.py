"""Waits too late: the first row for all.

Must get: row 0 came, and not the rank's own row
"""

import torch.distributed as dist


def hand_out(table):
    rank, p = dist.get_rank(), dist.get_world_size()
    row = table[0].clone()
    if rank > 0:
        dist.recv(row, 0)
        return row
    for peer in range(1, p):
        dist.send(row, peer)
    return row
