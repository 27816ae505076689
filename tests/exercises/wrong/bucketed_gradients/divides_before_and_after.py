"""Divides before and after.

Must get: 1/p times the right one
"""

import torch
import torch.distributed as dist


def bucketed_gradients(parameters, bucket_bytes):
    p = dist.get_world_size()
    seen, todo = set(), []
    for q in parameters:
        if id(q) in seen or not q.requires_grad:
            continue
        seen.add(id(q))
        todo.append(q)
        if q.grad is None:
            q.grad = torch.zeros_like(q)
    bucket, size = [], 0

    def flush():
        if not bucket:
            return
        flat = torch.cat([b.grad.flatten() for b in bucket]) / p
        dist.all_reduce(flat)
        flat /= p
        at = 0
        for b in bucket:
            n = b.grad.numel()
            b.grad.copy_(flat[at : at + n].view_as(b.grad))
            at += n
        bucket.clear()

    for q in reversed(todo):
        n = q.grad.numel() * q.grad.element_size()
        if bucket and size + n > bucket_bytes:
            flush()
            size = 0
        bucket.append(q)
        size += n
    flush()
