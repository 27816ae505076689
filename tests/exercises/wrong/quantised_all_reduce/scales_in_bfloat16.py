"""Rounds the scales after it has quantised.

Must get: off by more than the bound
Must not get: rounded towards zero
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
    theirs, their_scales = torch.empty_like(numbers), torch.empty_like(scales)
    dist.all_to_all_single(theirs, numbers)
    short, their_short = scales.bfloat16(), their_scales.bfloat16()
    dist.all_to_all_single(their_short, short)
    their_scales = their_short.float()
    total = (theirs * their_scales[:, None]).view(p, each, block).sum(0)
    numbers, scales = quantised(total)
    all_numbers = torch.empty(p * each, block, dtype=torch.int8)
    all_scales = torch.empty(p * each)
    dist.all_gather_single(all_numbers, numbers)
    dist.all_gather_single(all_scales, scales)
    result = (all_numbers * all_scales[:, None]).flatten()[: flat.numel()]
    return result.reshape(tensor.shape).to(tensor.dtype)
