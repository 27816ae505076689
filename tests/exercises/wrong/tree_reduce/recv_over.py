"""Receives into the sum instead of adding to it.

Must get: is what it received from rank
"""

import torch.distributed as dist


def tree_reduce(tensor, dst):
    p = dist.get_world_size()
    me = (dist.get_rank() - dst) % p
    work = tensor.clone().contiguous()
    mask = 1
    while mask < p:
        if me & mask:
            dist.send(work, (me - mask + dst) % p)
            return
        if me + mask < p:
            dist.recv(work, (me + mask + dst) % p)
        mask *= 2
    if me == 0:
        tensor.copy_(work)
