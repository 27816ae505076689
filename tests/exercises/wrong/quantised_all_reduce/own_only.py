"""Quantises its own numbers and returns them.

Must get: of its own arguments only: nothing of the other ranks is in it
"""

import torch
import torch.distributed as dist


def quantised(rows):
    """int8 and one scale a row, of a matrix with a block in each row."""
    scales = rows.abs().amax(1) / 127
    safe = torch.where(scales > 0, scales, torch.ones_like(scales))
    return (rows / safe[:, None]).round().to(torch.int8), scales


def quantised_all_reduce(tensor, block):
    p = dist.get_world_size()
    flat = tensor.flatten().float()
    each = -(-flat.numel() // (block * p))
    rows = torch.zeros(p * each * block)
    rows[: flat.numel()] = flat
    numbers, scales = quantised(rows.view(-1, block))
    result = (numbers * scales[:, None]).flatten()[: flat.numel()]
    return result.reshape(tensor.shape).to(tensor.dtype)
