"""Inside ready() it waits for the bucket before, so that one at a time is on the wire.

Must get: rank 0 waits for an all_reduce (line 28, which leads to line 24) while 3 gradients are still to be computed
"""

import torch
import torch.distributed as dist


def overlapped_gradients(parameters, bucket_bytes, backward):
    buckets, room = [], 0
    for place in reversed(range(len(parameters))):
        if not buckets or parameters[place].nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(place)
        room -= parameters[place].nbytes
    there, flying = set(), []

    def ready(place):
        there.add(place)
        while len(flying) < len(buckets) and there.issuperset(buckets[len(flying)]):
            if flying:
                flying[-1][1].wait()  # one at a time on the wire
            flat = torch.cat([parameters[i].grad.flatten() for i in buckets[len(flying)]])
            flying.append((flat, dist.all_reduce(flat, async_op=True)))

    backward(ready)
    for bucket, (flat, work) in zip(buckets, flying, strict=True):
        work.wait()
        flat /= dist.get_world_size()
        for i, piece in zip(bucket, flat.split([parameters[i].numel() for i in bucket]), strict=True):
            parameters[i].grad.copy_(piece.view_as(parameters[i]))
