"""Builds the whole rows on every rank with one all_reduce.

Must get: three values a row are enough
"""

import torch
import torch.distributed as dist


def distributed_cross_entropy(logits, targets):
    rows, width = logits.shape
    first = dist.get_rank() * width
    whole = torch.zeros(rows, width * dist.get_world_size(), dtype=logits.dtype)
    whole[:, first : first + width] = logits
    dist.all_reduce(whole)
    return torch.nn.functional.cross_entropy(whole, targets, reduction="none")
