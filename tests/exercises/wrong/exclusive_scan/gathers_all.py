"""Sends its tensor to every higher rank at once.

Must get: send sums, not all the tensors that they are made of
"""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = tensor.contiguous()
    arrived = [torch.empty_like(mine) for _ in range(rank)]
    ops = [dist.P2POp(dist.isend, mine, peer) for peer in range(rank + 1, p)]
    ops += [dist.P2POp(dist.irecv, place, peer) for peer, place in enumerate(arrived)]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    return sum(arrived, torch.zeros_like(mine))
