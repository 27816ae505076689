"""All messages in one batch, and what arrives is put into the list that the caller gave.

Must get: the items of an argument were changed
Must get: rank 0 changed the items of chunks
"""

import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):
    rank, p = dist.get_rank(), dist.get_world_size()
    shape, dtype = chunks[rank].shape, chunks[rank].dtype
    ops = [dist.P2POp(dist.isend, chunks[q].contiguous(), q) for q in range(p) if q != rank]
    for q in range(p):
        if q != rank:
            chunks[q] = torch.empty(shape, dtype=dtype)
            ops.append(dist.P2POp(dist.irecv, chunks[q], q))
    for work in dist.batch_isend_irecv(ops) if ops else ():
        work.wait()
    return chunks
