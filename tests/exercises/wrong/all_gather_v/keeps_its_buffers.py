"""Receives into buffers that it keeps from call to call.

Must get: keeps the memory that it returned
"""

import torch
import torch.distributed as dist

KEEP = {}


def all_gather_v(tensor):
    r, p = dist.get_rank(), dist.get_world_size()
    mine = tensor.contiguous()

    def ring(x, box):
        held = {r: x}
        for s in range(p - 1):
            o, i = held[(r - s) % p], box((r - s - 1) % p)
            ops = ([dist.P2POp(dist.isend, o, (r + 1) % p)] if o.numel() else []) + (
                [dist.P2POp(dist.irecv, i, (r - 1) % p)] if i.numel() else []
            )
            for w in dist.batch_isend_irecv(ops) if ops else []:
                w.wait()
            held[(r - s - 1) % p] = i
        return held

    n = ring(torch.tensor([len(mine)]), lambda i: torch.empty(1, dtype=torch.int64))

    def make(i):
        key = (i, int(n[i]), mine.dtype, tuple(mine.shape[1:]))
        if key not in KEEP:
            KEEP[key] = torch.empty(int(n[i]), *mine.shape[1:], dtype=mine.dtype)
        return KEEP[key]

    held = ring(mine.clone(), make)
    return [held[i] for i in range(p)]
