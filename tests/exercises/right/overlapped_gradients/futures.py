import torch
import torch.distributed as dist


def overlapped_gradients(parameters, bucket_bytes, backward):
    """The futures of the works, as a DDP communication hook keeps them."""
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
            flat = torch.cat([parameters[i].grad.flatten() for i in buckets[len(flying)]])
            flying.append((flat, dist.all_reduce(flat, async_op=True).get_future()))

    backward(ready)
    for bucket, (flat, future) in zip(buckets, flying, strict=True):
        future.wait()
        flat /= dist.get_world_size()
        for i, piece in zip(bucket, flat.split([parameters[i].numel() for i in bucket]), strict=True):
            parameters[i].grad.copy_(piece.view_as(parameters[i]))
