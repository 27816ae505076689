"""Takes the collective.

Must get: forbids
"""

import torch
import torch.distributed as dist


def hand_out(table):
    rank = dist.get_rank()
    row = torch.empty_like(table[0])
    dist.scatter(row, list(table.unbind()) if rank == 0 else None, src=0)
    return row
