"""Only the own chunk gets its sum.

Must get: the second shot
"""

import torch.distributed as dist


def two_shot_all_reduce(tensor, memory):
    rank, p = dist.get_rank(), dist.get_world_size()
    n = tensor.numel()
    edges = [i * (n // p) + min(i, n % p) for i in range(p + 1)]

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
    total = memory.get(0, start, end - start)
    for other in range(1, p):
        total += memory.get(other, start, end - start)
    memory.put(rank, n + start, total)
    barrier()
    flat = tensor.reshape(-1).clone()
    flat[start:end] = total
    tensor.copy_(flat.view(tensor.shape))
