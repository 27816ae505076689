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


def reducer(parameters, buckets):
    """Takes one place at each send(); launches whatever may go; its value is what is under way."""
    seen, flying = set(), []
    while len(flying) < len(buckets):
        seen.add((yield))
        while len(flying) < len(buckets) and seen.issuperset(buckets[len(flying)]):
            bucket = buckets[len(flying)]
            flat = torch.cat([parameters[place].grad.flatten() for place in bucket]) / dist.get_world_size()
            flying.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
    return flying


def overlapped_gradients(parameters, bucket_bytes, backward):
    made = []

    def collect():
        made.extend((yield from reducer(parameters, plan(parameters, bucket_bytes))))
        yield

    takes = collect()
    next(takes)
    backward(takes.send)
    for bucket, flat, work in made:
        work.wait()
        offset = 0
        for place in bucket:
            gradient = parameters[place].grad
            gradient.copy_(flat[offset : offset + gradient.numel()].view(gradient.shape))
            offset += gradient.numel()
