"""Adds what came one chunk further.

Must get: but it was added to chunk
Must not get: must send
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = [chunk.contiguous().clone() for chunk in tensor.tensor_split(p)]
    for step in range(p - 1):
        send, add = (rank - step - 1) % p, (rank - step - 2) % p
        incoming = torch.empty_like(chunks[add])
        sending = dist.isend(chunks[send], (rank + 1) % p)
        dist.recv(incoming, (rank - 1) % p)
        sending.wait()
        into = chunks[(add - 1) % p]
        into[: len(incoming)] += incoming[: len(into)]
    return chunks[rank]
