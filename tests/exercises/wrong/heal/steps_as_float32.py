"""The steps travel as float32, in which two steps above 2^24 look equal.

Must get: the steps travelled as float32, which holds no odd number above 2^24: send them in an integer dtype
"""

import torch
import torch.distributed as dist


def rp():
    return dist.get_rank(), dist.get_world_size()


def heal(weights, step):
    rank, p = rp()
    steps = torch.empty(p)
    dist.all_gather_into_tensor(steps, torch.tensor([float(step)]))
    s = steps.tolist()
    top = max(s)
    fresh = [r for r in range(p) if s[r] == top]
    old = [r for r in range(p) if s[r] != top]
    w = weights.contiguous()
    for i, o in enumerate(old):
        f = fresh[i % len(fresh)]
        if rank == f:
            dist.send(w, o)
        if rank == o:
            dist.recv(w, f)
            weights.copy_(w)
    return int(top)
