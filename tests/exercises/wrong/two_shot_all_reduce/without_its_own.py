"""A rank adds up its chunk of all others, without its own.

Must get: each chunk lacks the tensor of the rank that adds it up
"""

import torch
import torch.distributed as dist


def two_shot_all_reduce(tensor, memory):
    rank, p = dist.get_rank(), dist.get_world_size()
    n = tensor.numel()
    edges = [i * n // p for i in range(p + 1)]

    def barrier():
        memory.fence()
        for other in range(p):
            if other != rank:
                memory.signal(other)
        for other in range(p):
            if other != rank:
                memory.wait(other)

    memory.put(rank, 0, tensor.reshape(-1))
    barrier()
    start, end = edges[rank], edges[rank + 1]
    total = torch.zeros(end - start, dtype=tensor.dtype)
    for other in range(p):
        if other != rank:
            total += memory.get(other, start, end - start)
    memory.put(rank, n + start, total)
    barrier()
    parts = [memory.get(r, n + edges[r], edges[r + 1] - edges[r]) for r in range(p)]
    tensor.copy_(torch.cat(parts).view(tensor.shape))
