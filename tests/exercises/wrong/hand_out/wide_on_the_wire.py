"""The rows of a float32 table travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def hand_out(table):
    rank, p = dist.get_rank(), dist.get_world_size()
    wide = torch.float64 if table.dtype == torch.float32 else table.dtype
    if rank > 0:
        row = torch.empty_like(table[0], dtype=wide)
        dist.recv(row, 0)
        return row.to(table.dtype)
    rows = table.to(wide).contiguous()
    works = [dist.isend(rows[peer], peer) for peer in range(1, p)]
    for work in works:
        work.wait()
    return table[0].clone()
