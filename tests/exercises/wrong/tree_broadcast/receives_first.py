"""Everybody but the root receives, the root too.

Must get: recv
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p
    buffer = tensor.contiguous()
    have = 1
    while have < p:
        if have <= me < 2 * have or me == 0:
            dist.recv(buffer, (me - have + src) % p)
        elif me < have and me + have < p:
            dist.send(buffer, (me + have + src) % p)
        have *= 2
    if me:
        tensor.copy_(buffer)
