"""Everybody sends to rank 0, then everybody to rank 1, and so on.

Must get: rounds of messages one after the other, but 4(p-1) =
"""

import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):  # in rank order, everybody to rank 0 first, one after the other
    r, p = dist.get_rank(), dist.get_world_size()
    out = [torch.empty_like(chunks[r].contiguous()) for _ in range(p)]
    out[r].copy_(chunks[r])
    for q in range(p):
        if q == r:
            for s in range(p):
                if s != r:
                    dist.recv(out[s], s)
        else:
            dist.send(chunks[q].contiguous(), q)
    return out
