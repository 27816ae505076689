"""The folded ranks never get the sum.

Must get: power of two
"""

import torch
import torch.distributed as dist


def swap(outgoing, peer):
    incoming = torch.empty_like(outgoing)
    sending = dist.isend(outgoing, peer)
    dist.recv(incoming, peer)
    sending.wait()
    return incoming


def recursive_doubling_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    total = tensor.contiguous().clone()
    q = 1 << (p.bit_length() - 1)
    r = p - q
    if rank < 2 * r and rank % 2 == 0:
        dist.send(total, rank + 1)
    else:
        if rank < 2 * r:
            incoming = torch.empty_like(total)
            dist.recv(incoming, rank - 1)
            total += incoming
        me = rank // 2 if rank < 2 * r else rank - r
        bit = 1
        while bit < q:
            other = me ^ bit
            peer = 2 * other + 1 if other < r else other + r
            total += swap(total, peer)
            bit *= 2
    tensor.copy_(total)
