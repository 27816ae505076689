"""Calls the collective itself.

Must get: forbids: broadcast
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    buffer = tensor.contiguous()
    dist.broadcast(buffer, src)
    tensor.copy_(buffer)
