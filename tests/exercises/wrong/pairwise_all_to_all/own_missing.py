"""Its own chunk is missing.

Must get: is zero, but must hold chunk 0 of rank 0
"""

import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):
    p, r = dist.get_world_size(), dist.get_rank()
    out = [torch.zeros_like(chunks[r]).contiguous() for _ in range(p)]
    for s in range(1, p):
        to, frm = (r + s) % p, (r - s) % p
        h = dist.isend(chunks[to].contiguous(), to)
        dist.recv(out[frm], frm)
        h.wait()
    return out
