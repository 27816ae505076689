"""Sends its own tensor on, not the sum.

Must get: without what it received from rank
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    p = dist.get_world_size()
    me = (dist.get_rank() - dst) % p
    own = tensor.clone().contiguous()
    work = own.clone()
    mask = 1
    while mask < p:
        if me & mask:
            dist.send(own, (me - mask + dst) % p)
            return
        if me + mask < p:
            other = torch.empty_like(work)
            dist.recv(other, (me + mask + dst) % p)
            work += other
        mask *= 2
    if me == 0:
        tensor.copy_(work)
