"""Doubles the distance round the circle: some contributions come twice if p is no power of two.

Must get: only right if the number of ranks is a power of two
Must get: the contribution of rank 0 was added 2 times
Must not get: everything
"""

import torch
import torch.distributed as dist


def recursive_doubling_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    total, got, far = tensor.contiguous().clone(), torch.empty(tensor.shape, dtype=tensor.dtype), 1
    while far < p:
        for w in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, total, (rank + far) % p), dist.P2POp(dist.irecv, got, (rank - far) % p)]
        ):
            w.wait()
        total += got
        far *= 2
    tensor.copy_(total)
