"""Sends back the gradient of the weight, not that of the input.

Must get: what is sent back is the output's gradient times the stage's input
"""

import torch
import torch.distributed as dist


def run_pipeline(batch, upstream, weight, order):
    rank, p = dist.get_rank(), dist.get_world_size()
    kept, pending, total = {}, [], torch.zeros_like(weight)
    for action in order:
        kind, i = action[0], int(action[1:])
        if kind == "F":
            x = batch[i].clone()
            if rank > 0:
                dist.recv(x, rank - 1)
            kept[i] = x
            if rank < p - 1:
                pending.append(dist.isend(x * weight, rank + 1))
        else:
            g = upstream[i].clone()
            if rank < p - 1:
                dist.recv(g, rank + 1)
            x = kept.pop(i)
            total += g * x
            if rank > 0:
                pending.append(dist.isend(g * x, rank - 1))
    for work in pending:
        work.wait()
    return total
