"""`add` makes a new tensor, which nobody keeps.

Must get: what was received was not added
Must not get: nothing was received
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    total = tensor.clone(memory_format=torch.contiguous_format)
    distance = 1
    while distance < p:
        if me % (2 * distance) == distance:
            dist.send(total, (me - distance + dst) % p)
            return
        if me + distance < p:
            arrived = torch.empty_like(total)
            dist.recv(arrived, (me + distance + dst) % p)
            total.add(arrived)
        distance *= 2
    tensor.copy_(total)
