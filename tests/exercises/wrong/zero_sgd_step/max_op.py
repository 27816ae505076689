"""Reduces with MAX.

Must get: reduce_scatter_tensor with MAX
"""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    p, r = dist.get_world_size(), dist.get_rank()
    with torch.no_grad():
        flat = torch.cat([q.flatten() for q in parameters])
        g = torch.cat([q.grad.flatten() for q in parameters])
        n = len(flat)
        m = -(-n // p)
        pad = m * p - n
        g = torch.cat([g, torch.zeros(pad, dtype=g.dtype)])
        flat = torch.cat([flat, torch.zeros(pad, dtype=g.dtype)])
        mine = torch.empty(m, dtype=g.dtype)
        dist.reduce_scatter_tensor(mine, g, op=dist.ReduceOp.MAX)
        shard = flat[r * m : (r + 1) * m] - lr * mine
        out = torch.empty_like(flat)
        dist.all_gather_into_tensor(out, shard.contiguous())
        at = 0
        for q in parameters:
            q.copy_(out[at : at + q.numel()].view_as(q))
            at += q.numel()
