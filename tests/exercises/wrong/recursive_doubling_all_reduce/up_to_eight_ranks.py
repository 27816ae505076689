"""A table of partners for one to eight ranks.

Must get: raised KeyError
"""

import torch
import torch.distributed as dist

STEPS = {1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2, 8: 3}


def recursive_doubling_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    whole = 1 << STEPS[p]
    extra, mine = p - whole, tensor.contiguous().clone()
    other = torch.empty_like(mine)
    if rank >= whole:
        dist.send(mine, rank - whole)
        dist.recv(mine, rank - whole)
    else:
        if rank < extra:
            dist.recv(other, rank + whole)
            mine += other
        for step in range(STEPS[p]):
            work = dist.isend(mine.clone(), rank ^ 1 << step)
            dist.recv(other, rank ^ 1 << step)
            work.wait()
            mine += other
        if rank < extra:
            dist.send(mine, rank + whole)
    tensor.copy_(mine)
