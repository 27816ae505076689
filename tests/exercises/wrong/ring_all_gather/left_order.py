"""Stores from the other side.

Must get: Place 1 of what rank 0 returned holds rank 2's tensor
"""

import torch
import torch.distributed as dist


def ring_all_gather(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    out = [torch.zeros_like(tensor).contiguous() for _ in range(p)]
    out[r] = tensor.clone().contiguous()
    cur = out[r]
    for s in range(p - 1):
        buf = torch.empty_like(cur)
        q = dist.isend(cur, (r + 1) % p)
        dist.recv(buf, (r - 1) % p)
        q.wait()
        cur = buf
        out[(r + s + 1) % p] = buf
    return torch.cat(out)
