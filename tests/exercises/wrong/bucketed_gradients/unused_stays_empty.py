"""Sends zeros for what it did not use, and keeps the mean from it.

Must get: give it a .grad
"""

import torch
import torch.distributed as dist


def average(bucket):
    flat = torch.cat([gradient(parameter).reshape(-1) for parameter in bucket])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for parameter, piece in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
        if parameter.grad is not None:
            parameter.grad.copy_(piece.view_as(parameter.grad))


def trained(parameters):
    once = list({id(parameter): parameter for parameter in parameters}.values())
    found = [parameter for parameter in once if parameter.requires_grad]
    return found[::-1]


def gradient(parameter):
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def bucketed_gradients(parameters, bucket_bytes):
    bucket, filled = [], 0
    for parameter in trained(parameters):
        nbytes = parameter.numel() * parameter.element_size()
        if bucket and filled + nbytes > bucket_bytes:
            average(bucket)
            bucket, filled = [], 0
        bucket.append(parameter)
        filled += nbytes
    if bucket:
        average(bucket)
