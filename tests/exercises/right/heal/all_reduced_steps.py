import torch
import torch.distributed as dist


def heal(weights, step):
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = torch.zeros(p, dtype=torch.int64)
    steps[rank] = step
    dist.all_reduce(steps)
    latest = int(steps.max())
    givers = (steps == latest).nonzero().flatten().tolist()
    takers = (steps < latest).nonzero().flatten().tolist()
    works, buffer = [], weights.contiguous().clone()
    if rank in takers:
        dist.recv(buffer, givers[takers.index(rank) * len(givers) // len(takers)])
        weights.copy_(buffer)
    else:
        mine = [t for i, t in enumerate(takers) if givers[i * len(givers) // len(takers)] == rank]
        works = [dist.isend(buffer, t) for t in mine]
    for work in works:
        work.wait()
    return latest
