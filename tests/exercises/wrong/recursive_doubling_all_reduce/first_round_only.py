"""One round.

Must get: only the first round
"""

import torch
import torch.distributed as dist


def recursive_doubling_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    total = tensor.contiguous().clone()
    bit = 1
    while bit < p and rank ^ bit < p:
        incoming = torch.empty_like(total)
        sending = dist.isend(total, rank ^ bit)
        dist.recv(incoming, rank ^ bit)
        sending.wait()
        total += incoming
        break
    tensor.copy_(total)
