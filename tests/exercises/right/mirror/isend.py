import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    if 2 * rank == p - 1:
        return tensor.clone()
    arrived = torch.empty(tensor.shape, dtype=tensor.dtype)
    sending = dist.isend(tensor.contiguous(), p - 1 - rank)
    dist.recv(arrived, p - 1 - rank)
    sending.wait()
    return arrived
