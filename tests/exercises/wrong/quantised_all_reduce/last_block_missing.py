"""Counts whole blocks only.

Must get: the last, shorter block is missing
Must not get: about right
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
    each, n = -(-(flat.numel() // block) // p), flat.numel() // block * block
    rows = torch.zeros(p * each * block)
    rows[:n] = flat[:n]
    numbers, scales = quantised(rows.view(-1, block))
    theirs, their_scales = torch.empty_like(numbers), torch.empty_like(scales)
    dist.all_to_all_single(theirs, numbers)
    dist.all_to_all_single(their_scales, scales)
    total = (theirs * their_scales[:, None]).view(p, each, block).sum(0)
    numbers, scales = quantised(total)
    all_numbers = torch.empty(p * each, block, dtype=torch.int8)
    all_scales = torch.empty(p * each)
    dist.all_gather_single(all_numbers, numbers)
    dist.all_gather_single(all_scales, scales)
    result = (all_numbers * all_scales[:, None]).flatten()[:n]
    result = torch.nn.functional.pad(result, (0, flat.numel() - n))
    return result.reshape(tensor.shape).to(tensor.dtype)
