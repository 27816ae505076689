"""The helper sends first.

Must get: (line 20, which leads to line 11)
"""

import torch
import torch.distributed as dist


def _exchange(buf, out, to, frm):
    dist.send(buf, to)
    dist.recv(out, frm)


def ring_shift(tensor, k):
    p, r = dist.get_world_size(), dist.get_rank()
    if k % p == 0:
        return tensor.clone()
    out = torch.empty_like(tensor).contiguous()
    _exchange(tensor.contiguous(), out, (r + k) % p, (r - k) % p)
    return out
