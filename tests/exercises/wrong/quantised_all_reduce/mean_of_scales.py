"""Adds the 8-bit numbers, and multiplies with the mean of the scales.

Must get: the 8-bit numbers were added before they were multiplied with their scales
"""

import torch
import torch.distributed as dist


def quant(x):  # (blocks, block)
    s = x.abs().amax(1) / 127
    q = (
        torch.where(s[:, None] > 0, x / torch.where(s > 0, s, 1)[:, None], torch.zeros_like(x))
        .round()
        .clamp(-127, 127)
        .to(torch.int8)
    )
    return q, s


def quantised_all_reduce(tensor, block):
    p = dist.get_world_size()
    flat = tensor.reshape(-1).float()
    n = flat.numel()
    blocks = -(-n // block)
    per = -(-blocks // p)
    x = torch.zeros(per * p * block)
    x[:n] = flat
    q, s = quant(x.view(-1, block))
    q2, s2 = torch.empty_like(q), torch.empty_like(s)
    if per:
        dist.all_to_all_single(q2, q)
        dist.all_to_all_single(s2, s)
    total = q2.view(p, per, block).sum(0).float() * s2.view(p, per).mean(0)[:, None]
    q, s = quant(total)
    Q, S = q.new_empty(p * per, block), s.new_empty(p * per)
    if per:
        dist.all_gather_single(Q, q)
        dist.all_gather_single(S, s)
    out = (Q.float() * S[:, None]).reshape(-1)[:n]
    return out.to(tensor.dtype).view(tensor.shape)
