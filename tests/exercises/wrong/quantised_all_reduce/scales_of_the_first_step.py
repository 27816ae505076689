"""Quantises the sums with new scales, and multiplies with the old ones.

Must get: the quantised sums were multiplied with scales of the first step
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
    total = (q2.float() * s2[:, None]).view(p, per, block).sum(0)
    q, s = quant(total)
    s = s2.view(p, per).sum(0) if per else s
    Q, S = q.new_empty(p * per, block), s.new_empty(p * per)
    if per:
        dist.all_gather_single(Q, q)
        dist.all_gather_single(S, s)
    out = (Q.float() * S[:, None]).reshape(-1)[:n]
    return out.to(tensor.dtype).view(tensor.shape)
