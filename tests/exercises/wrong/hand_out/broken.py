"""As it was.

Must get: before its wait()
"""

import torch.distributed as dist


def hand_out(table):
    rank, p = dist.get_rank(), dist.get_world_size()
    row = table[0].clone()
    if rank > 0:
        dist.recv(row, 0)
        return row
    works = []
    for peer in range(1, p):
        row.copy_(table[peer])
        works.append(dist.isend(row, peer))
    for work in works:
        work.wait()
    return table[0].clone()
