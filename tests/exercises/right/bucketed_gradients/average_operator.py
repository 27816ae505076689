import torch
import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def bucketed_gradients(parameters, bucket_bytes) -> None:
    todo = []
    for p in parameters:
        if p.requires_grad and all(p is not other for other in todo):
            todo.append(p)
    while todo:
        bucket = [todo.pop()]
        while todo and sum(p.nbytes for p in bucket) + todo[-1].nbytes <= bucket_bytes:
            bucket.append(todo.pop())
        gradients = [torch.zeros_like(p.data) if p.grad is None else p.grad for p in bucket]
        flat = _flatten_dense_tensors(gradients)
        dist.all_reduce(flat, op=dist.ReduceOp.AVG)
        for p, averaged in zip(bucket, _unflatten_dense_tensors(flat, gradients), strict=True):
            p.grad = averaged.clone()
