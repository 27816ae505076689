"""Attends to its own tokens, without messages.

Must get: of its own arguments only: nothing of the other ranks is in it
"""

import torch
import torch.distributed as dist


def ulysses_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    p = dist.get_world_size()
    n, heads, d = q.shape
    p = 1
    packed = torch.stack([q, k, v]).view(3, n, p, heads // p, d).permute(2, 0, 1, 3, 4).contiguous()
    received = torch.empty_like(packed)
    received = packed
    whole = received.permute(1, 3, 0, 2, 4).reshape(3, heads // p, p * n, d).double()
    scores = whole[0] @ whole[1].mT / d**0.5
    mask = torch.arange(p * n)[None, :] > torch.arange(p * n)[:, None]
    result = (scores.masked_fill(mask, -torch.inf).softmax(-1) @ whole[2]).to(q.dtype)
    outgoing = result.view(heads // p, p, n, d).permute(1, 2, 0, 3).contiguous()
    incoming = torch.empty_like(outgoing)
    incoming = outgoing
    return incoming.permute(1, 0, 2, 3).reshape(n, heads, d)
