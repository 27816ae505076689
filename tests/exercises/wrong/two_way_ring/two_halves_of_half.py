"""Takes two halves of numel // 2 elements.

Must get: the last element was left out
Must not get: the number of ranks
"""

import torch
import torch.distributed as dist


def exchange(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def two_way_ring(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    buf = tensor.contiguous().clone()
    f = buf.view(-1)
    h = f.numel() // 2
    halves = [x.tensor_split(p) for x in (f[:h], f[h : 2 * h])]
    for step in range(2 * (p - 1)):
        ops, todo = [], []
        for chunks, d in zip(halves, (1, -1), strict=True):
            into = chunks[(rank - d * (step + 1)) % p]
            got = torch.empty_like(into)
            ops += [("s", chunks[(rank - d * step) % p], (rank + d) % p), ("r", got, (rank - d) % p)]
            todo.append((into, got))
        exchange(*ops)
        for into, got in todo:
            into.copy_(into + got if step < p - 1 else got)
    tensor.copy_(buf)
