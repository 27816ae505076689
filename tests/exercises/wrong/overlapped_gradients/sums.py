"""Forgets to divide.

Must get: p times the right one on every rank
"""

import torch
import torch.distributed as dist


def plan(parameters, bucket_bytes):
    """The places of the parameters by bucket, from the last one on."""
    buckets, room = [], 0
    for place in reversed(range(len(parameters))):
        nbytes = parameters[place].numel() * parameters[place].element_size()
        if not buckets or nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(place)
        room -= nbytes
    return buckets


def overlapped_gradients(parameters, bucket_bytes, backward):
    buckets = plan(parameters, bucket_bytes)
    missing = [set(bucket) for bucket in buckets]
    flying = []

    def launch(bucket):
        flat = torch.cat([parameters[place].grad.reshape(-1) for place in bucket])
        flying.append((flat, dist.all_reduce(flat, async_op=True)))

    def ready(place):
        for places in missing:
            places.discard(place)
        while len(flying) < len(buckets) and not missing[len(flying)]:
            launch(buckets[len(flying)])

    backward(ready)
    for bucket, (flat, work) in zip(buckets, flying, strict=True):
        work.wait()
        for place, piece in zip(bucket, flat.split([parameters[i].numel() for i in bucket]), strict=True):
            parameters[place].grad.copy_(piece.view_as(parameters[place]))
