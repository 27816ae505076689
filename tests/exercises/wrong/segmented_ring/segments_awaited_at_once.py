"""Has segments, and waits for each at once.

Must get: With each message in
Must not get: With 2 segments
"""

import torch
import torch.distributed as dist


def exchange(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def segmented_ring(tensor, add):
    rank, p = dist.get_rank(), dist.get_world_size()
    buf = tensor.contiguous().clone()
    chunks = [c.tensor_split(4) for c in buf.view(-1).tensor_split(p)]
    for step in range(2 * (p - 1)):
        for into, out in zip(chunks[(rank - step - 1) % p], chunks[(rank - step) % p], strict=True):
            got = torch.empty_like(into)
            exchange(("s", out, (rank + 1) % p), ("r", got, (rank - 1) % p))
            add(into, got) if step < p - 1 else into.copy_(got)
    tensor.copy_(buf)
