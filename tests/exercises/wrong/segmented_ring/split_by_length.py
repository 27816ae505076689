"""Cuts pieces of floor(size / p) elements: the rest is left out, and of a small vector there are too few.

Must get: only right if
Must get: 1 element gives at most 1 piece that is not empty, but p is 2
Must not get: as torch.chunk makes them
"""

import torch
import torch.distributed as dist


def segmented_ring(tensor, add):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    chunks = flat.split(max(1, len(flat) // p))[:p]
    for step in range(2 * (p - 1)):
        into = chunks[(rank - step - 1) % p]
        arrived = torch.empty_like(into)
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        if step < p - 1:
            add(into, arrived)
        else:
            into.copy_(arrived)
    tensor.copy_(flat.view(tensor.shape))
