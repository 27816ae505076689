"""The first loop makes one step too few, the second one all of them.

Must get: the loop ends too early (line 18)
Must not get: line 28
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    flat = tensor.reshape(-1).clone()
    chunks = list(flat.tensor_split(p))
    right, left = (r + 1) % p, (r - 1) % p
    for s in range(p - 2):
        buf = torch.empty_like(chunks[(r - s - 1) % p])
        work = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.irecv, buf, left),
                dist.P2POp(dist.isend, chunks[(r - s) % p], right),
            ]
        )
        [w.wait() for w in work]
        chunks[(r - s - 1) % p] += buf
    for s in range(p - 1):
        send, recv = chunks[(r + 1 - s) % p], chunks[(r - s) % p]
        work = dist.batch_isend_irecv([dist.P2POp(dist.irecv, recv, left), dist.P2POp(dist.isend, send, right)])
        [w.wait() for w in work]
    tensor.copy_(flat.view_as(tensor))
