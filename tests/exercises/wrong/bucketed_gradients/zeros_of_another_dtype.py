"""The zeros of an unused parameter have the default dtype.

Must get: float32
"""

import torch
import torch.distributed as dist


def bucketed_gradients(parameters, bucket_bytes):
    trained = [p for p in dict.fromkeys(parameters) if p.requires_grad]
    buckets, size = [], 0
    for p in reversed(trained):
        if not buckets or size + p.nbytes > bucket_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(p)
        size += p.nbytes
    for b in buckets:
        flat = torch.cat([(torch.zeros(p.shape) if p.grad is None else p.grad).flatten() for p in b])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, piece in zip(b, flat.split([p.numel() for p in b]), strict=False):
            p.grad = piece.view_as(p).to(p.dtype).clone()
