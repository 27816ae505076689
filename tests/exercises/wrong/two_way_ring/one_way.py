"""The correct ring: one direction, so that half of each node's cards send nothing.

Must get: times the lower bound
Must get: over the network card
Must get: with both directions
"""

import torch
import torch.distributed as dist


def two_way_ring(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(p)
    for step in range(2 * (p - 1)):
        into = chunks[(rank - step - 1) % p]
        arrived = torch.empty_like(into)
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        into.copy_(into + arrived if step < p - 1 else arrived)
    tensor.copy_(flat.view(tensor.shape))
