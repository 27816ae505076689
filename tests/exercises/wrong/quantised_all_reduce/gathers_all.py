"""Gathers everybody's whole quantised vector.

Must get: gathering everybody's whole vector grows with p
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
    all_numbers = torch.empty(p * len(numbers), block, dtype=torch.int8)
    all_scales = torch.empty(p * len(numbers))
    dist.all_gather_single(all_numbers, numbers)
    dist.all_gather_single(all_scales, scales)
    result = (all_numbers * all_scales[:, None]).view(p, -1).sum(0)[: flat.numel()]
    return result.reshape(tensor.shape).to(tensor.dtype)
