"""The distance grows by one.

Must get: has the contribution of rank 0 2 times
"""

import torch
import torch.distributed as dist


def exclusive_scan(tensor):
    r, p = dist.get_rank(), dist.get_world_size()
    running = tensor.contiguous().clone()
    result, _started = torch.zeros_like(running), False
    d = 1
    while d < p:
        ops, box = [], None
        if r + d < p:
            ops.append(dist.P2POp(dist.isend, running, r + d))
        if r - d >= 0:
            box = torch.empty_like(running)
            ops.append(dist.P2POp(dist.irecv, box, r - d))
        for w in dist.batch_isend_irecv(ops) if ops else ():
            w.wait()
        if box is not None:
            result = result + box
            running = running + box
        d += 1
    return result
