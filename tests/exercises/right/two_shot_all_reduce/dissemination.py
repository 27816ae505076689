"""One region and three dissemination barriers: the last one lets the next call begin."""

import torch
import torch.distributed as dist


def barrier(memory):
    distance = 1
    while distance < memory.ranks:
        memory.fence()
        memory.signal((memory.rank + distance) % memory.ranks)
        memory.wait((memory.rank - distance) % memory.ranks)
        distance *= 2


def two_shot_all_reduce(tensor: torch.Tensor, memory) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    sizes = [len(chunk) for chunk in flat.tensor_split(p)]
    starts = [sum(sizes[:r]) for r in range(p)]
    memory.put(rank, 0, flat)
    barrier(memory)
    total = torch.zeros(sizes[rank], dtype=flat.dtype)
    for other in range(p):
        total += memory.get(other, starts[rank], sizes[rank])
    memory.put(rank, starts[rank], total)  # nobody else reads this chunk of this rank before the barrier
    barrier(memory)
    result = torch.cat([memory.get(r, starts[r], sizes[r]) for r in range(p)])
    barrier(memory)
    tensor.copy_(result.view(tensor.shape))
