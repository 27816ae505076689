"""All places are one buffer.

Must get: holds rank 1's tensor, but must hold rank 2's tensor
Must not get: pass on what you received last
"""

import torch
import torch.distributed as dist


def ring_all_gather(tensor):
    p, r = dist.get_world_size(), dist.get_rank()
    out = [torch.zeros_like(tensor).contiguous()] * p
    out[r] = tensor.clone().contiguous()
    for s in range(p - 1):
        q = dist.isend(out[(r - s) % p].clone(), (r + 1) % p)
        dist.recv(out[(r - s - 1) % p], (r - 1) % p)
        q.wait()
    return torch.cat(out)
