"""Passes the whole vector round and adds: the sum is right, the bytes are not.

Must get: whole vectors
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    outgoing = tensor.clone().contiguous()
    for _ in range(p - 1):
        incoming = torch.empty_like(outgoing)
        work = dist.isend(outgoing, (rank + 1) % p)
        dist.recv(incoming, (rank - 1) % p)
        work.wait()
        tensor += incoming
        outgoing = incoming
