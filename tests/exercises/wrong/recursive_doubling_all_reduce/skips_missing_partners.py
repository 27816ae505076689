"""Leaves out partners that are not there.

Must get: power of two
"""

import torch
import torch.distributed as dist


def recursive_doubling_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    total = tensor.contiguous().clone()
    bit = 1
    while bit < p:
        if rank ^ bit >= p:
            bit *= 2
            continue
        incoming = torch.empty_like(total)
        sending = dist.isend(total, rank ^ bit)
        dist.recv(incoming, rank ^ bit)
        sending.wait()
        total += incoming
        bit *= 2
    tensor.copy_(total)
