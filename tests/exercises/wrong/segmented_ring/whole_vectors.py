"""Passes whole vectors round the ring.

Must get: times the lower bound
"""

import torch
import torch.distributed as dist


def segmented_ring(tensor, add):
    rank, p = dist.get_rank(), dist.get_world_size()
    total, passing = tensor.clone(), tensor.contiguous()
    for _ in range(p - 1):
        arrived = torch.empty_like(passing)
        ops = [dist.P2POp(dist.isend, passing, (rank + 1) % p), dist.P2POp(dist.irecv, arrived, (rank - 1) % p)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        add(total, arrived)
        passing = arrived
    tensor.copy_(total)
