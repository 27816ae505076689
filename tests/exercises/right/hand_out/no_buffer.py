import torch
import torch.distributed as dist


def hand_out(table):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        row = torch.empty_like(table[0])
        dist.recv(row, 0)
        return row
    rows = table.contiguous()
    works = [dist.isend(rows[peer], peer) for peer in range(1, p)]
    for work in works:
        work.wait()
    return table[0].clone()
