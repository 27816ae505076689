import torch
import torch.distributed as dist


def shift(edge, to, source):
    """Blocking calls only: one rank that receives first opens the circle."""
    arrived = torch.empty(edge.shape, dtype=edge.dtype)
    if dist.get_rank() == 0:
        dist.recv(arrived, source)
        dist.send(edge, to)
    else:
        dist.send(edge, to)
        dist.recv(arrived, source)
    return arrived


def halo_exchange(edge):
    rank, p = dist.get_rank(), dist.get_world_size()
    if p == 1:
        return edge.clone(), edge.clone()
    left, right = (rank - 1) % p, (rank + 1) % p
    edge = edge.contiguous()
    return shift(edge, right, left), shift(edge, left, right)
