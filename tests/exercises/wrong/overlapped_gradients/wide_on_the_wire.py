"""The buckets travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


class Bucket:
    """Gradients side by side in one buffer, as DDP keeps them."""

    def __init__(self):
        self.places, self.nbytes, self.pending, self.work = [], 0, 0, None


def overlapped_gradients(parameters, bucket_bytes, backward) -> None:
    buckets = [Bucket()]
    home = {}
    for place, parameter in reversed(list(enumerate(parameters))):
        if buckets[-1].places and buckets[-1].nbytes + parameter.nbytes > bucket_bytes:
            buckets.append(Bucket())
        home[place] = bucket = buckets[-1]
        bucket.places.append(place)
        bucket.nbytes += parameter.nbytes
        bucket.pending += 1
    for bucket in buckets:
        sizes = [parameters[place].numel() for place in bucket.places]
        bucket.flat = torch.empty(sum(sizes), dtype=torch.float64)
        bucket.pieces = dict(zip(bucket.places, bucket.flat.split(sizes), strict=True))
    todo = list(buckets)

    def ready(place):
        bucket = home[place]
        bucket.pieces[place].copy_(parameters[place].grad.flatten())
        bucket.pending -= 1
        while todo and todo[0].pending == 0:
            first = todo.pop(0)
            first.work = dist.all_reduce(first.flat, op=dist.ReduceOp.AVG, async_op=True)

    backward(ready)
    for bucket in buckets:
        bucket.work.wait()
        for place, piece in bucket.pieces.items():
            parameters[place].grad = piece.to(parameters[place].dtype).view_as(parameters[place])
