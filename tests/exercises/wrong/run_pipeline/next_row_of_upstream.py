"""Takes the rows of upstream one after the other, whichever micro-batch it is.

Must get: the rows of `upstream` were taken one after the other
"""

import torch
import torch.distributed as dist


def run_pipeline(batch, upstream, weight, order):
    rank, p = dist.get_rank(), dist.get_world_size()
    rows = iter(upstream)
    kept, pending, total = {}, [], torch.zeros_like(weight)
    for action in order:
        i, needed = int(action[1:]), torch.empty_like(weight)
        if action[0] == "F":
            if rank > 0:
                dist.recv(needed, rank - 1)
            else:
                needed = batch[i]
            kept[i] = needed
            if rank < p - 1:
                pending.append(dist.isend(needed * weight, rank + 1))
        else:
            if rank < p - 1:
                dist.recv(needed, rank + 1)
            else:
                needed = next(rows)
            total += kept.pop(i) * needed
            if rank > 0:
                pending.append(dist.isend(needed * weight, rank - 1))
    for work in pending:
        work.wait()
    return total
