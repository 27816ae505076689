"""Has two rounds only, which is enough for 4 ranks.

Must get: received nothing
Must not get: whole multiple
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    v = (rank - src) % p
    buf = tensor.contiguous()
    for d in (1, 2):
        if v < d and v + d < p:
            dist.send(buf, (v + d + src) % p)
        elif d <= v < 2 * d:
            dist.recv(buf, (v - d + src) % p)
    tensor.copy_(buf)
