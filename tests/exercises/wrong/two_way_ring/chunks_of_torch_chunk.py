"""torch.chunk may make fewer than p chunks of each half.

Must get: raised IndexError
Must get: can be fewer than p: 1 element gives 1 piece, but p is 2. torch.tensor_split always makes as many pieces as you ask for.
"""

import torch
import torch.distributed as dist


def two_way_ring(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    if p == 1:
        return
    flat = tensor.contiguous().view(-1).clone()
    halves = [list(half.chunk(p)) for half in flat.chunk(2)]
    for step in range(2 * p - 2):
        ops, stores = [], []
        for way, chunks in zip((1, -1), halves, strict=True):
            out, into = (way * rank - step) % p, (way * rank - step - 1) % p
            received = torch.empty_like(chunks[into])
            ops += [
                dist.P2POp(dist.isend, chunks[out], (rank + way) % p),
                dist.P2POp(dist.irecv, received, (rank - way) % p),
            ]
            stores.append((chunks[into], received))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        for chunk, received in stores:
            chunk.copy_(chunk + received if step < p - 1 else received)
    tensor.copy_(flat.view_as(tensor))
