"""Takes an element for 4 bytes, which one of bfloat16 has not.

Must get: as if an element had 4 bytes (line 25): an element of bfloat16 has 2 bytes
"""

import torch
import torch.distributed as dist


def bucketed_gradients(parameters, bucket_bytes):
    trained = [p for p in dict.fromkeys(parameters) if p.requires_grad]
    for p in trained:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    buckets, filled = [[]], 0
    for p in reversed(trained):
        nbytes = 4 * p.grad.numel()
        if buckets[-1] and filled + nbytes > bucket_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(p)
        filled += nbytes
    for bucket in buckets:
        flat = torch.cat([p.grad.flatten() for p in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, piece in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.grad.copy_(piece.view_as(p))
