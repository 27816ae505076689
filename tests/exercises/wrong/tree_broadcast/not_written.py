"""Forgets to copy into a non-contiguous tensor.

Must get: Only wrong with non-contiguous tensors
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p
    buffer = tensor.contiguous()
    have = 1
    while have < p:
        if me < have and me + have < p:
            dist.send(buffer, (me + have + src) % p)
        elif have <= me < 2 * have:
            dist.recv(buffer, (me - have + src) % p)
        have *= 2
