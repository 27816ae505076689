"""Takes the lowest index of all ranks that hold the maximum.

Must get: the index is the lowest of all ranks that hold the maximum
"""

import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    flat = tensor.reshape(-1)
    r, p = dist.get_rank(), dist.get_world_size()
    i = flat.argmax()
    top = flat[i].reshape(1).clone()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    mine = bool(top == flat[i]) or bool(flat[i].isnan())
    at = torch.tensor([r if mine else p, int(i) if mine else 1 << 60])
    dist.all_reduce(at, op=dist.ReduceOp.MIN)
    return top.item(), int(at[0]), int(at[1])
