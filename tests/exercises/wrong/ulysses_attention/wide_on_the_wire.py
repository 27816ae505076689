"""Queries, keys and values travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: needs its own heads
"""

import torch
import torch.distributed as dist


def turn(t, p):
    n, h, d = t.shape
    x = t.double().reshape(n, p, h // p, d).transpose(0, 1).contiguous()
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x)
    return y.reshape(p * n, h // p, d)


def back(t, p):
    N, hp, d = t.shape
    x = t.contiguous().view(p, N // p, hp, d)
    y = torch.empty_like(x)
    dist.all_to_all_single(y, x)
    return y.transpose(0, 1).reshape(N // p, p * hp, d)


def ulysses_attention(q, k, v):
    p = dist.get_world_size()
    Q, K, V = (turn(t, p).transpose(0, 1) for t in (q, k, v))
    o = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
    return back(o.transpose(0, 1), p).to(q.dtype)
