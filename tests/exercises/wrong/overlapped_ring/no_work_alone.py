"""With one rank it does no work at all.

Must get: calls work() 0 times
"""

import torch
import torch.distributed as dist


def overlapped_ring(tensor, work, pieces):
    rank, p = dist.get_rank(), dist.get_world_size()
    if p == 1:
        return
    flat = tensor.reshape(-1).clone()
    c = flat.tensor_split(p)
    total, done = 2 * (p - 1), 0
    for step in range(total):
        into = c[(rank - step - 1) % p]
        box = torch.empty_like(into)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, c[(rank - step) % p], (rank + 1) % p), dist.P2POp(dist.irecv, box, (rank - 1) % p)]
        )
        while done * total < pieces * (step + 1):
            work()
            done += 1
        for w in works:
            w.wait()
        into.copy_(into + box if step < p - 1 else box)
    for _ in range(pieces - done):
        work()
    tensor.copy_(flat.view(tensor.shape))
