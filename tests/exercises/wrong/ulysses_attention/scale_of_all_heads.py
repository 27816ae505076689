"""Divides by the root of the width of all heads: with two heads of width two that is the head's width.

Must get: the root of the width of all heads together
Must not get: divided by the head's width
"""

import torch
import torch.distributed as dist


def ulysses_attention(q, k, v):
    p = dist.get_world_size()
    t, h, d = q.shape

    def turn(x):
        x = x.reshape(t, p, h // p, d).transpose(0, 1).contiguous()
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x)
        return y.reshape(p * t, h // p, d)

    Q, K, V = (turn(x).transpose(0, 1).double() for x in (q, k, v))
    s = Q @ K.mT / (h * d) ** 0.5
    s = s + torch.full((p * t, p * t), float("-inf")).triu(1).double()
    o = (s.softmax(-1) @ V).to(q.dtype).transpose(0, 1)
    o = o.reshape(p, t, h // p, d).contiguous()
    back = torch.empty_like(o)
    dist.all_to_all_single(back, o)
    return back.transpose(0, 1).reshape(t, h, d)
