"""n // p elements a chunk, and the last chunk has the rest as well.

Must get: chunks of unequal length
Must get: sends a message of 3 elements (line 23), but tensor_split's longest chunk has 1
Must not get: too few
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.flatten().clone()
    size = flat.numel() // p
    chunks = [flat[i * size : (i + 1) * size if i < p - 1 else None] for i in range(p)]
    left, right = (rank - 1) % p, (rank + 1) % p
    for phase in ("reduce", "gather"):
        for step in range(p - 1):
            send = (rank - step + (phase == "gather")) % p
            take = (send - 1) % p
            arrived = torch.empty_like(chunks[take])
            sending = dist.isend(chunks[send], right)
            dist.recv(arrived, left)
            sending.wait()
            if phase == "reduce":
                chunks[take] += arrived
            else:
                chunks[take].copy_(arrived)
    tensor.copy_(flat.view_as(tensor))
