"""Leaves out what has no gradient here.

Must get: must contribute zeros
"""

import torch
import torch.distributed as dist


def trained(parameters):
    seen = set()
    for q in parameters:
        if q.requires_grad and q.grad is not None and id(q) not in seen:
            seen.add(id(q))
            yield q


def buckets(parameters, cap):
    bucket, size = [], 0
    for q in reversed(list(trained(parameters))):
        nbytes = q.numel() * q.element_size()
        if bucket and size + nbytes > cap:
            yield bucket
            bucket, size = [], 0
        bucket.append(q)
        size += nbytes
    if bucket:
        yield bucket


def bucketed_gradients(parameters, bucket_bytes):
    p = dist.get_world_size()
    for bucket in buckets(parameters, bucket_bytes):
        grads = [torch.zeros_like(q).detach() if q.grad is None else q.grad for q in bucket]
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat)
        flat /= p
        for q, piece in zip(bucket, flat.split([g.numel() for g in grads]), strict=False):
            piece = piece.view(q.shape)
            if q.grad is None:
                q.grad = piece.clone()
            else:
                q.grad.copy_(piece)
