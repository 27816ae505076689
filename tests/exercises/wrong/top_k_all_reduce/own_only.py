"""Sends nothing.

Must get: no rank sent a message
"""

import torch


def top_k_all_reduce(tensor, k, error):
    wanted = (tensor + error).flatten()
    k = min(k, wanted.numel())
    indices = wanted.abs().topk(k).indices
    values = wanted[indices]
    wanted[indices] = 0
    error.copy_(wanted.reshape(error.shape))
    total = torch.zeros_like(wanted)
    total[indices] = values
    return total.reshape(tensor.shape)
