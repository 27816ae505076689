"""A gradient that is absent on this rank has no bytes in its bucket, so the ranks close their buckets at other places.

Must get: as many as the parameter has elements
Must not get: left it out
"""

import torch
import torch.distributed as dist


def bucketed_gradients(parameters, bucket_bytes):
    p = dist.get_world_size()
    params = list(dict.fromkeys(q for q in parameters if q.requires_grad))[::-1]
    buckets, size = [], 0
    for q in params:
        n = 0 if q.grad is None else q.grad.nbytes
        if not buckets or size + n > bucket_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(q)
        size += n
    for b in buckets:
        flat = torch.cat([(q.grad if q.grad is not None else torch.zeros_like(q)).reshape(-1) for q in b])
        dist.all_reduce(flat)
        flat /= p
        for q, g in zip(b, flat.split([q.numel() for q in b]), strict=True):
            q.grad = g.view_as(q).clone()
