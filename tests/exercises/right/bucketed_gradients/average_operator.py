import torch.distributed as dist
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def bucketed_gradients(parameters, bucket_bytes) -> None:
    todo = [p for p in parameters if p.grad is not None]
    while todo:
        bucket = [todo.pop()]
        while todo and sum(p.grad.nbytes for p in bucket) + todo[-1].grad.nbytes <= bucket_bytes:
            bucket.append(todo.pop())
        flat = _flatten_dense_tensors([p.grad for p in bucket])
        dist.all_reduce(flat, op=dist.ReduceOp.AVG)
        for p, averaged in zip(bucket, _unflatten_dense_tensors(flat, [p.grad for p in bucket]), strict=True):
            p.grad = averaged.clone()
