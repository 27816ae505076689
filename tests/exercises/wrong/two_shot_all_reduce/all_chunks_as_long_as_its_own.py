"""Takes the chunks of the others to be as long as its own.

Must get: into which no rank ever puts anything
"""

import torch


def two_shot_all_reduce(tensor, memory):
    rank, p, n = memory.rank, memory.ranks, tensor.numel()

    def barrier():
        memory.fence()
        distance = 1
        while distance < p:
            memory.signal((rank + distance) % p)
            memory.wait((rank - distance) % p)
            distance *= 2

    sizes = [chunk.numel() for chunk in tensor.reshape(-1).tensor_split(p)]
    starts = [sum(sizes[:r]) for r in range(p)]
    memory.put(rank, 0, tensor.reshape(-1))
    barrier()
    total = memory.get(0, starts[rank], sizes[rank])
    for peer in range(1, p):
        total = total + memory.get(peer, starts[rank], sizes[rank])
    memory.put(rank, n + starts[rank], total)
    barrier()
    chunks = [memory.get(peer, n + peer * sizes[rank], sizes[rank]) for peer in range(p)]
    tensor.copy_(
        torch.cat(chunks)[:n].view(tensor.shape)
        if sum(len(c) for c in chunks) >= n
        else torch.nn.functional.pad(torch.cat(chunks), (0, n - sum(len(c) for c in chunks))).view(tensor.shape)
    )
