"""A gradient over the cap goes alone, and the bucket that was open stays open.

Must get: also if that gradient alone is larger than the cap
"""

import torch
import torch.distributed as dist


def bucketed_gradients(parameters, bucket_bytes):
    """A gradient that is too large goes alone, and the bucket that was open stays open."""
    trained = [p for p in dict.fromkeys(parameters) if p.requires_grad]
    for p in trained:
        if p.grad is None:
            p.grad = torch.zeros_like(p)

    def average(bucket):
        flat = torch.cat([p.grad.flatten() for p in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, piece in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.grad.copy_(piece.view_as(p))

    bucket, filled = [], 0
    for p in reversed(trained):
        if p.grad.nbytes > bucket_bytes:
            average([p])
            continue
        if filled + p.grad.nbytes > bucket_bytes:
            average(bucket)
            bucket, filled = [], 0
        bucket.append(p)
        filled += p.grad.nbytes
    if bucket:
        average(bucket)
