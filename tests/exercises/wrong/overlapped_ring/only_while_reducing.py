"""The work is dealt out to the first half of the steps only.

Must get: times the lower bound
"""

import torch
import torch.distributed as dist


def overlapped_ring(tensor, work, pieces):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    chunks, steps, done = flat.tensor_split(p), 2 * (p - 1), 0
    for step in range(steps):
        into = chunks[(rank - step - 1) % p]
        arrived = torch.empty_like(into)
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        handles = dist.batch_isend_irecv(ops)
        while done * steps < 2 * pieces * (step + 1) and done < pieces:
            work()
            done += 1
        for handle in handles:
            handle.wait()
        into.copy_(into + arrived if step < p - 1 else arrived)
    for _ in range(done, pieces):
        work()
    tensor.copy_(flat.view(tensor.shape))
