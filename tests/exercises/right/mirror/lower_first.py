import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    partner = p - 1 - rank
    arrived = tensor.clone(memory_format=torch.contiguous_format)
    if rank < partner:
        dist.send(arrived, partner)
        dist.recv(arrived, partner)
    elif rank > partner:
        mine = arrived.clone()
        dist.recv(arrived, partner)
        dist.send(mine, partner)
    return arrived
