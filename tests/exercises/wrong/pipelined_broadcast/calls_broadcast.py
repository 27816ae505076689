"""Calls the collective itself.

Must get: forbids: broadcast
"""

import torch.distributed as dist


def pipelined_broadcast(tensor, src, segments):
    buffer = tensor.contiguous()
    dist.broadcast(buffer, src)
    tensor.copy_(buffer)
