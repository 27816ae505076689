"""Even ranks send first and odd ones receive first: each step takes two rounds or three.

Must get: rounds of messages one after the other, but p-1 =
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = [c.clone(memory_format=torch.contiguous_format) for c in tensor.tensor_split(p)]
    for step in range(p - 1):
        out, into = chunks[(rank - step - 1) % p], chunks[(rank - step - 2) % p]
        incoming = torch.empty_like(into)
        if rank % 2:
            dist.recv(incoming, (rank - 1) % p)
            dist.send(out, (rank + 1) % p)
        else:
            dist.send(out, (rank + 1) % p)
            dist.recv(incoming, (rank - 1) % p)
        into += incoming
    return chunks[rank]
