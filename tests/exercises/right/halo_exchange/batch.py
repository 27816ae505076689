import torch
import torch.distributed as dist


def halo_exchange(edge: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = edge.contiguous()
    if p == 1:
        return mine, mine
    left, right = (rank - 1) % p, (rank + 1) % p
    from_left, from_right = torch.zeros_like(mine), torch.zeros_like(mine)
    ops = [
        dist.P2POp(dist.irecv, from_left, left),
        dist.P2POp(dist.isend, mine, right),
        dist.P2POp(dist.irecv, from_right, right),
        dist.P2POp(dist.isend, mine, left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return from_left, from_right
