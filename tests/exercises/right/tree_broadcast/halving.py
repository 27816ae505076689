import torch
import torch.distributed as dist


def tree_broadcast(tensor, src):
    """From the largest distance to the smallest: each rank receives once, then sends to ever nearer ranks."""
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p
    work = tensor.clone(memory_format=torch.contiguous_format)
    distance = 1 << (p - 1).bit_length()
    while distance > 1:
        distance //= 2
        if me % (2 * distance) == 0 and me + distance < p:
            dist.isend(work, (me + distance + src) % p).wait()
        elif me % (2 * distance) == distance:
            dist.irecv(work, (me - distance + src) % p).wait()
    if rank != src:
        tensor.copy_(work)
