"""Takes rank 0 for the root.

Must get: rank 0's tensor was sent
Must get: root 0
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = rank
    buffer = tensor.contiguous()
    have = 1
    while have < p:
        if me < have and me + have < p:
            dist.send(buffer, (me + have))
        elif have <= me < 2 * have:
            dist.recv(buffer, (me - have))
        have *= 2
    if me:
        tensor.copy_(buffer)
