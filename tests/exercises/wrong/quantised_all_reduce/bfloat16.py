"""Sends bfloat16.

Must get: send one byte a number, and not bfloat16
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
    rows = rows.bfloat16()
    theirs = torch.empty_like(rows)
    dist.all_to_all_single(theirs, rows)
    total = theirs.view(p, -1).float().sum(0).bfloat16()
    everything = torch.empty_like(rows)
    dist.all_gather_single(everything, total)
    return everything[: flat.numel()].reshape(tensor.shape).to(tensor.dtype)
