"""The buckets travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def plan(gradients, bucket_bytes):
    buckets = [[]]
    for gradient in gradients:
        if buckets[-1] and sum(g.nbytes for g in buckets[-1]) + gradient.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(gradient)
    return [bucket for bucket in buckets if bucket]


def bucketed_gradients(parameters, bucket_bytes):
    """All buckets are under way before the first is waited for."""
    trained = [p for p in dict.fromkeys(parameters) if p.requires_grad]
    for p in trained:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    flying = []
    for bucket in plan([p.grad for p in trained][::-1], bucket_bytes):
        flat = torch.cat([g.flatten().double() for g in bucket]) / dist.get_world_size()
        flying.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
    for bucket, flat, work in flying:
        work.wait()
        offset = 0
        for gradient in bucket:
            gradient.copy_(flat[offset : offset + gradient.numel()].reshape(gradient.shape))
            offset += gradient.numel()
