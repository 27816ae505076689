import torch
import torch.distributed as dist


def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    partner, mine = p - 1 - rank, tensor.contiguous()
    if partner == rank:
        return mine.clone()
    arrived = torch.empty_like(mine)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, arrived, partner), dist.P2POp(dist.isend, mine, partner)]
    ):
        work.wait()
    return arrived
