"""Gives each parameter new data instead of writing into its memory."""

import torch
import torch.distributed as dist


def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = torch.cat([q.detach().flatten() for q in parameters])
    grads = torch.cat([q.grad.flatten() for q in parameters])
    length = -(-len(flat) // p)
    flat, grads = (torch.nn.functional.pad(t, (0, length * p - len(t))) for t in (flat, grads))
    mine = torch.empty(length, dtype=grads.dtype)
    dist.reduce_scatter_tensor(mine, grads)
    dist.all_gather_into_tensor(flat, flat[rank * length : (rank + 1) * length] - lr * mine / p)
    for q in parameters:
        q.data = flat[: q.numel()].view_as(q)
        flat = flat[q.numel() :]
