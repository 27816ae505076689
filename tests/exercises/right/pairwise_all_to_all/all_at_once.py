import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):
    rank, p = dist.get_rank(), dist.get_world_size()
    received = [torch.zeros_like(chunks[rank].contiguous()) for _ in range(p)]
    received[rank] = chunks[rank].clone()
    outgoing = [chunk.contiguous() for chunk in chunks]
    ops = []
    for other in range(p):
        if other != rank:
            ops.append(dist.P2POp(dist.isend, outgoing[other], other))
            ops.append(dist.P2POp(dist.irecv, received[other], other))
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    return received
