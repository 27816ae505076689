"""Recursive doubling without a fold.

Must get: Only right if the number of ranks is a power of two
"""

import torch
import torch.distributed as dist


def bruck_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    whole = torch.zeros((p, *tensor.shape), dtype=tensor.dtype)
    whole[rank] = tensor
    have = 1
    while have < p:
        other = rank ^ have
        mine, theirs = rank // have * have, other // have * have
        if other < p:
            ops = [
                dist.P2POp(dist.isend, whole[mine : mine + have], other),
                dist.P2POp(dist.irecv, whole[theirs : theirs + have], other),
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
        have *= 2
    return whole.flatten(0, 1)
