"""Calls the collective itself.

Must get: forbids: all_to_all
"""

import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):
    received = [torch.empty_like(chunks[dist.get_rank()].contiguous()) for _ in chunks]
    dist.all_to_all(received, [chunk.contiguous() for chunk in chunks])
    return received
