import functools

import torch
import torch.distributed as dist


def copy_back(parameters, places, future):
    (flat,) = future.value()
    flat.div_(dist.get_world_size())
    at = 0
    for place in places:
        gradient = parameters[place].grad
        gradient.view(-1).copy_(flat[at : at + gradient.numel()])
        at += gradient.numel()


def overlapped_gradients(parameters, bucket_bytes, backward):
    bucket_of, sizes = {}, []
    for place in range(len(parameters) - 1, -1, -1):
        nbytes = parameters[place].numel() * parameters[place].element_size()
        if not sizes or sizes[-1] + nbytes > bucket_bytes:
            sizes.append(0)
        sizes[-1] += nbytes
        bucket_of[place] = len(sizes) - 1
    members = [[place for place, b in bucket_of.items() if b == number] for number in range(len(sizes))]
    missing = [len(places) for places in members]
    futures = []

    def ready(place):
        missing[bucket_of[place]] -= 1
        while len(futures) < len(members) and missing[len(futures)] == 0:
            places = members[len(futures)]
            flat = torch.cat([parameters[i].grad.view(-1) for i in places])
            future = dist.all_reduce(flat, async_op=True).get_future()
            futures.append(future.then(functools.partial(copy_back, parameters, places)))

    backward(ready)
    torch.futures.wait_all(futures)
