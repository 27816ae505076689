"""`add` makes a new tensor, which nobody keeps.

Must get: that part was never received, or not stored
"""

import torch
import torch.distributed as dist


def ring_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    whole = torch.zeros((p, *tensor.shape), dtype=tensor.dtype)
    whole[rank] = tensor
    passing = tensor.contiguous()
    for step in range(p - 1):
        came = torch.empty_like(passing)
        sending = dist.isend(passing, (rank + 1) % p)
        dist.recv(came, (rank - 1) % p)
        sending.wait()
        whole[(rank - step - 1) % p].add(came)
        passing = came
    return whole.flatten(0, 1)
