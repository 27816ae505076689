"""Divides by the number of parameters.

Must get: divided by the number of parameters
"""

import torch
import torch.distributed as dist


def bucketed_gradients(parameters, bucket_bytes):
    dist.get_world_size()
    trained = []
    for w in parameters:
        if w.requires_grad and not any(w is o for o in trained):
            trained.append(w)
    bucket, size = [], 0

    def flush():
        nonlocal bucket, size
        if not bucket:
            return
        flat = torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).reshape(-1) for w in bucket])
        dist.all_reduce(flat)
        flat /= len(parameters)
        at = 0
        for w in bucket:
            w.grad = flat[at : at + w.numel()].view(w.shape).clone()
            at += w.numel()
        bucket, size = [], 0

    for w in reversed(trained):
        nbytes = w.numel() * w.element_size()
        if bucket and size + nbytes > bucket_bytes:
            flush()
        bucket.append(w)
        size += nbytes
    flush()
