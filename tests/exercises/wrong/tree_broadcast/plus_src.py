"""Counts ranks from the wrong side: rank + src.

Must get: not (rank + src) mod p
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    v, have, buffer = (rank + src) % p, 1, tensor.contiguous().clone()
    while have < p:
        if v < have and v + have < p:
            dist.send(buffer.reshape(-1), (rank + have) % p)
        elif have <= v < 2 * have:
            dist.recv(buffer.view(-1), (rank - have) % p)
        have *= 2
    tensor.copy_(buffer)
