"""Row 0 of upstream for every micro-batch.

Must get: begins with row 0 of `upstream`
"""

import torch
import torch.distributed as dist


def run_pipeline(batch, upstream, weight, order):
    rank, p = dist.get_rank(), dist.get_world_size()
    kept, pending = {}, []
    total = torch.zeros_like(weight)
    for action in order:
        i = int(action[1:])
        if action[0] == "F":
            if rank == 0:
                x = batch[i].clone()
            else:
                x = torch.empty(weight.shape, dtype=weight.dtype)
                dist.recv(x, rank - 1, tag=i)
            kept[i] = x
            if rank < p - 1:
                y = x * weight
                pending.append((y, dist.isend(y, rank + 1, tag=i)))
        else:
            if rank == p - 1:
                g = upstream[0].clone()
            else:
                g = torch.empty(weight.shape, dtype=weight.dtype)
                dist.recv(g, rank + 1, tag=i)
            total += g * kept.pop(i)
            if rank > 0:
                d = g * weight
                pending.append((d, dist.isend(d, rank - 1, tag=i)))
    for _, w in pending:
        w.wait()
    return total
