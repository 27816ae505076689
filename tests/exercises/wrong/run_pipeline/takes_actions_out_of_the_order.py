"""Takes each action out of the caller's list.

Must get: the items of an argument were changed
Must get: rank 0 changed the items of order
"""

import torch
import torch.distributed as dist


def run_pipeline(batch, upstream, weight, order):
    rank, p = dist.get_rank(), dist.get_world_size()
    gradient, kept, works = torch.zeros_like(weight), {}, []
    while order:
        action = order.pop(0)
        i = int(action[1:])
        if action[0] == "F":
            x = batch[i].clone()
            if rank > 0:
                dist.recv(x, rank - 1)
            kept[i] = x
            if rank < p - 1:
                works.append(dist.isend((x * weight).contiguous(), rank + 1))
        else:
            g = upstream[i].clone()
            if rank < p - 1:
                dist.recv(g, rank + 1)
            gradient += g * kept.pop(i)
            if rank > 0:
                works.append(dist.isend((g * weight).contiguous(), rank - 1))
    for work in works:
        work.wait()
    return gradient
