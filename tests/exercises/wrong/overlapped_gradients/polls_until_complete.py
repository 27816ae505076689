"""Launches each bucket in ready(), then asks there until it is complete: a wait in disguise.

Must get: asks again and again whether its all_reduce
Must get: while it still has work to do
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
    there, done = set(), []

    def ready(place):
        there.add(place)
        while len(done) < len(buckets) and set(buckets[len(done)]) <= there:
            flat = torch.cat([parameters[i].grad.reshape(-1) for i in buckets[len(done)]])
            work = dist.all_reduce(flat, async_op=True)
            done.append((work, flat))
            while True:
                if work.is_completed():
                    break

    backward(ready)
    for (work, flat), bucket in zip(done, buckets, strict=True):
        work.wait()
        at = 0
        for i in bucket:
            g = parameters[i].grad
            g.copy_((flat[at : at + g.numel()] / dist.get_world_size()).view_as(g))
            at += g.numel()
