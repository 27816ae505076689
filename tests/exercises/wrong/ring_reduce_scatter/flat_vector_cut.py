"""Cuts the flat vector.

Must get: the flat vector was cut
Must not get: reshape
"""

import torch
import torch.distributed as dist


def exchange(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = [c.clone() for c in tensor.reshape(-1).tensor_split(p)]
    for s in range(p - 1):
        i = (rank - s - 2) % p
        got = torch.empty_like(chunks[i])
        exchange(("s", chunks[(rank - s - 1) % p], (rank + 1) % p), ("r", got, (rank - 1) % p))
        chunks[i] += got
    return chunks[rank]
