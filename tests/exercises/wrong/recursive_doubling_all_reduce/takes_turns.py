"""The two of a pair send one after the other, which takes two rounds.

Must get: the two of a pair must send at the same time
"""

import torch
import torch.distributed as dist


def swap(outgoing, rank, peer):
    incoming = torch.empty_like(outgoing)
    if rank < peer:
        dist.send(outgoing, peer)
        dist.recv(incoming, peer)
    else:
        dist.recv(incoming, peer)
        dist.send(outgoing, peer)
    return incoming


def recursive_doubling_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    total = tensor.clone(memory_format=torch.contiguous_format)
    q = 1 << (p.bit_length() - 1)
    if rank >= q:
        dist.send(total, rank - q)
        dist.recv(total, rank - q)
    else:
        if rank + q < p:
            incoming = torch.empty_like(total)
            dist.recv(incoming, rank + q)
            total += incoming
        bit = 1
        while bit < q:
            total += swap(total, rank, rank ^ bit)
            bit *= 2
        if rank + q < p:
            dist.send(total, rank + q)
    tensor.copy_(total)
