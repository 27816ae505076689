"""isend and recv, one window a round."""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    below, own = None, tensor.contiguous()
    for k in range((p - 1).bit_length()):
        up, down = rank + 2**k, rank - 2**k
        work = None
        if up < p:
            work = dist.isend(own if below is None else own + below, up)
        if down >= 0:
            arrived = torch.empty_like(own)
            dist.recv(arrived, down)
        if work is not None:
            work.wait()
        if down >= 0:
            below = arrived if below is None else below + arrived
    return torch.zeros_like(own) if below is None else below
