"""Torch raises NotImplementedError for an operation that this dtype lacks: the function is written all the same.

Must get: raised NotImplementedError
Must not get: not written yet
"""

import torch


def ring_all_reduce(tensor):
    tensor.flatten().to(torch.bool).cumsum(0).bitwise_left_shift(1.5)
