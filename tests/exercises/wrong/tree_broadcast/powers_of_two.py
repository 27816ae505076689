"""Sends to ranks that are not there.

Must get: rank
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p
    buffer = tensor.contiguous()
    have = 1
    while have < p:
        if me < have:
            dist.send(buffer, me + have + src)
        elif have <= me < 2 * have:
            dist.recv(buffer, (me - have + src) % p)
        have *= 2
    if me:
        tensor.copy_(buffer)
