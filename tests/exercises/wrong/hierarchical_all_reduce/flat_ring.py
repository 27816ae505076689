"""One ring over all ranks.

Must get: but 2(m-1)/m x n/g
"""

import torch
import torch.distributed as dist


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1).clone()
    chunks = flat.tensor_split(p)
    for step in range(2 * (p - 1)):
        reducing = step < p - 1
        send = (rank - step) % p if reducing else (rank + 1 - (step - p + 1)) % p
        take = (send - 1) % p
        incoming = torch.empty_like(chunks[take])
        sending = dist.isend(chunks[send].clone(), (rank + 1) % p)
        dist.recv(incoming, (rank - 1) % p)
        sending.wait()
        chunks[take].copy_(chunks[take] + incoming if reducing else incoming)
    tensor.copy_(flat.view(tensor.shape))
