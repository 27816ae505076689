"""Two rounds for any number of ranks.

Must get: dst has the sum of 4 ranks only
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    v = (rank - dst) % p
    acc = tensor.contiguous().clone()
    for d in (1, 2):
        if v % (2 * d) == d:
            dist.send(acc, (v - d + dst) % p)
            return
        if v + d < p:
            got = torch.empty_like(acc)
            dist.recv(got, (v + d + dst) % p)
            acc += got
    if v == 0:
        tensor.copy_(acc)
