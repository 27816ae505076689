"""With an odd number of ranks the middle one sends to itself.

Must get: which is this rank itself
"""

import torch
import torch.distributed as dist


def mirror(tensor):
    other = dist.get_world_size() - 1 - dist.get_rank()
    received = torch.empty(tensor.shape, dtype=tensor.dtype)
    sending = dist.isend(tensor.contiguous(), other)
    dist.recv(received, other)
    sending.wait()
    return received
