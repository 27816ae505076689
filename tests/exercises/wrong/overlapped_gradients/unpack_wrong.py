"""Divides by 2.

Must get: as if divided by 2 instead of by the number of ranks
"""

import torch
import torch.distributed as dist


def overlapped_gradients(parameters, bucket_bytes, backward):
    plan, size = [], 0
    for i in reversed(range(len(parameters))):
        n = parameters[i].numel() * parameters[i].element_size()
        if not plan or size + n > bucket_bytes:
            plan.append([])
            size = 0
        plan[-1].append(i)
        size += n
    have, nxt, work = set(), 0, []

    def ready(i):
        nonlocal nxt
        have.add(i)
        while nxt < len(plan) and all(j in have for j in plan[nxt]):
            flat = torch.cat([parameters[j].grad.flatten() for j in plan[nxt]])
            work.append((plan[nxt], flat, dist.all_reduce(flat, async_op=True)))
            nxt += 1

    backward(ready)
    for b, flat, h in work:
        h.wait()
        at = 0
        for j in b:
            g = parameters[j].grad
            g.copy_(flat[at : at + g.numel()].view_as(g))
            at += g.numel()
            g /= 2
