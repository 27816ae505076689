"""Waits for its isend before it receives.

Must get: waits for its isend before it receives
Must not get: sends before it receives
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    p, r = dist.get_world_size(), dist.get_rank()
    k = k % p
    out = torch.empty_like(tensor).contiguous()
    if k == 0:
        return tensor.clone()
    dist.isend(tensor.contiguous(), (r + k) % p).wait()
    dist.recv(out, (r - k) % p)
    return out
