"""Calls the collective itself.

Must get: send, recv, isend, irecv
"""

import torch.distributed as dist


def two_level_ring(tensor, ranks_per_node):
    whole = tensor.contiguous()
    dist.all_reduce(whole)
    tensor.copy_(whole)
