"""Numbers the left half's chunks as the right half's.

Must get: elements of different chunks added together
"""

import torch
import torch.distributed as dist


def ring(flat, sign):
    """A generator: yields the operations of a step, and goes on when they are done."""
    rank, p = dist.get_rank(), dist.get_world_size()
    c = flat.tensor_split(p)
    for step in range(2 * (p - 1)):
        into = c[(rank - step - 1) % p]
        box = torch.empty_like(into)
        yield [
            dist.P2POp(dist.isend, c[(rank - step) % p], (rank + sign) % p),
            dist.P2POp(dist.irecv, box, (rank - sign) % p),
        ]
        into.copy_(box + into if step < p - 1 else box)


def two_way_ring(tensor):
    flat = tensor.contiguous().reshape(-1).clone()
    halves = flat.tensor_split(2)
    for a, b in zip(ring(halves[0], 1), ring(halves[1], -1), strict=True):
        # with two ranks the neighbours are one rank: receive in the order in which it sends
        for work in dist.batch_isend_irecv(a + b):
            work.wait()
    tensor.copy_(flat.view(tensor.shape))
