"""Compares nothing.

Must get: own top k
"""

import torch
import torch.distributed as dist


def distributed_top_k(tensor, k):
    flat = tensor.reshape(-1)
    order = torch.argsort(flat, descending=True, stable=True)[:k]
    return flat[order], torch.full_like(order, dist.get_rank()), order
