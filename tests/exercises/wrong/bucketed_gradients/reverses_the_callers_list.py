"""Turns the caller's list round to begin at the last parameter.

Must get: the items of an argument were changed
Must get: the items of parameters
"""

import torch
import torch.distributed as dist


def average(bucket):
    flat = torch.cat([parameter.grad.reshape(-1) for parameter in bucket])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for parameter, piece in zip(bucket, flat.split([p.grad.numel() for p in bucket]), strict=True):
        parameter.grad.copy_(piece.view_as(parameter.grad))


def bucketed_gradients(parameters, bucket_bytes):
    places = {}
    for place, parameter in enumerate(parameters):
        places.setdefault(id(parameter), place)
    parameters.reverse()
    bucket, filled, count = [], 0, len(parameters)
    for turn, parameter in enumerate(parameters):
        if not parameter.requires_grad or places[id(parameter)] != count - 1 - turn:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        nbytes = parameter.grad.numel() * parameter.grad.element_size()
        if bucket and filled + nbytes > bucket_bytes:
            average(bucket)
            bucket, filled = [], 0
        bucket.append(parameter)
        filled += nbytes
    if bucket:
        average(bucket)
