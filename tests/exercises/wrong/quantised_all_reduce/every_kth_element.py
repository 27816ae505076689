"""Takes every k-th element for a block.

Must get: a block's elements are not neighbours
"""

import torch
import torch.distributed as dist


def quantise(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    q = torch.where(scale > 0, x / torch.where(scale > 0, scale, 1), 0).round().clamp(-127, 127).to(torch.int8)
    return q, scale


def quantised_all_reduce(tensor, block):
    p = dist.get_world_size()
    n = tensor.numel()
    blocks = -(-n // block)
    per = -(-blocks // p)
    x = torch.zeros(p * per * block)
    x[:n] = tensor.reshape(-1).float()
    q, s = quantise(x.view(block, p * per).T.contiguous().view(p, per, block))
    q2, s2 = torch.empty_like(q), torch.empty_like(s)
    dist.all_to_all_single(q2, q)
    dist.all_to_all_single(s2, s)
    total = (q2.float() * s2).sum(0)
    q, s = quantise(total)
    q3 = [torch.empty_like(q) for _ in range(p)]
    s3 = [torch.empty_like(s) for _ in range(p)]
    dist.all_gather(q3, q)
    dist.all_gather(s3, s)
    out = (torch.cat(q3).float() * torch.cat(s3)).reshape(p * per, block).T.reshape(-1)[:n]
    return out.to(tensor.dtype).view(tensor.shape)
