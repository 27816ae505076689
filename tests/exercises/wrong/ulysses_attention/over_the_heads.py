"""Does not transpose before the attention.

Must get: the attention is over the heads
"""

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention


def to_heads(t, p):
    n, h, d = t.shape
    pieces = t.reshape(n, p, h // p, d).transpose(0, 1).contiguous()
    whole = torch.empty_like(pieces)
    dist.all_to_all_single(whole, pieces)
    return whole.reshape(p * n, h // p, d)


def to_tokens(t, p):
    tokens, share, d = t.shape
    pieces = t.reshape(p, tokens // p, share, d).contiguous()
    back = torch.empty_like(pieces)
    dist.all_to_all_single(back, pieces)
    return back.transpose(0, 1).reshape(tokens // p, p * share, d)


def ulysses_attention(q, k, v):
    p = dist.get_world_size()
    whole = scaled_dot_product_attention(*(to_heads(t, p) for t in (q, k, v)), is_causal=True)
    return to_tokens(whole, p)
