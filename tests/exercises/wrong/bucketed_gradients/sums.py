"""Forgets to divide.

Must get: p times the right one on every rank
"""

import torch
import torch.distributed as dist


def average(bucket):
    flat = torch.cat([parameter.grad.reshape(-1) for parameter in bucket])
    dist.all_reduce(flat)
    for parameter, piece in zip(bucket, flat.split([p.grad.numel() for p in bucket]), strict=True):
        parameter.grad.copy_(piece.view_as(parameter.grad))


def trained(parameters):
    once = list({id(parameter): parameter for parameter in parameters}.values())
    found = [parameter for parameter in once if parameter.requires_grad]
    for parameter in found:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return found[::-1]


def bucketed_gradients(parameters, bucket_bytes):
    bucket, filled = [], 0
    for parameter in trained(parameters):
        nbytes = parameter.grad.numel() * parameter.grad.element_size()
        if bucket and filled + nbytes > bucket_bytes:
            average(bucket)
            bucket, filled = [], 0
        bucket.append(parameter)
        filled += nbytes
    if bucket:
        average(bucket)
