"""Returns the real part.

Must get: the imaginary part is lost
Must not get: pairs of reals
"""

import torch
import torch.distributed as dist


def distributed_mean(tensor):
    t = torch.empty(tensor.shape, dtype=tensor.dtype)
    t.copy_(tensor)
    t = torch.real(t).contiguous() if t.is_complex() else t
    dist.all_reduce(t)
    return t / dist.get_world_size()
