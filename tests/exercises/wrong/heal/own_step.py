"""Returns its own step.

Must get: each rank returned its own step
Must not get: rounded
Must not get: nothing changed
Must not get: committed although
"""

import torch
import torch.distributed as dist


def heal(weights, step):
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(steps, torch.tensor([step]))
    steps = [int(s) for s in steps]
    latest = max(steps)
    fresh = [r for r in range(p) if steps[r] == latest]
    behind = [r for r in range(p) if steps[r] < latest]
    ops, arrived = [], torch.empty(weights.shape, dtype=weights.dtype)
    for i, taker in enumerate(behind):
        giver = fresh[i % len(fresh)]
        if giver == rank:
            ops.append(dist.P2POp(dist.isend, weights.contiguous(), taker))
        if taker == rank:
            ops.append(dist.P2POp(dist.irecv, arrived, giver))
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    if step < latest:
        weights.copy_(arrived)
    return step
