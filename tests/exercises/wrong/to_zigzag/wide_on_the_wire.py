"""The chunks travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: each chunk goes straight
"""

import torch
import torch.distributed as dist


def rp():
    return dist.get_rank(), dist.get_world_size()


def to_zigzag(tensor):
    rank, p = rp()
    t = tensor.to(torch.float64) if tensor.dtype in (torch.float32, torch.bfloat16) else tensor
    n = len(t) // 2

    def need(c):
        return min(c, 2 * p - 1 - c)

    halves = {2 * rank: t[:n].contiguous(), 2 * rank + 1: t[n:].contiguous()}
    got = {c: halves[c] if c in halves else torch.empty_like(halves[2 * rank]) for c in (rank, 2 * p - 1 - rank)}
    hs = [dist.irecv(got[c], c // 2, tag=c) for c in got if c not in halves]
    hs += [dist.isend(h, need(c), tag=c) for c, h in halves.items() if need(c) != rank]
    for h in hs:
        h.wait()
    return torch.cat([got[rank], got[2 * p - 1 - rank]]).to(tensor.dtype)
