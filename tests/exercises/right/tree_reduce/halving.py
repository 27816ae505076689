import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % p
    total = tensor.contiguous().clone()
    active = p
    while active > 1:
        half = (active + 1) // 2
        if half <= me < active:
            dist.isend(total, (me - half + dst) % p).wait()
        elif me < active - half:
            buffer = torch.zeros_like(total)
            dist.irecv(buffer, (me + half + dst) % p).wait()
            total = total + buffer
        active = half
    if rank == dst:
        tensor.copy_(total)
