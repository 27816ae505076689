"""Adds what came to the chunk that it has just sent.

Must get: received chunk 2 from rank 2
Must get: what came was added to another chunk
Must not get: must send
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    length = -(-tensor.numel() // p)
    padded = torch.nn.functional.pad(tensor.reshape(-1), (0, length * p - tensor.numel()))
    chunks = padded.tensor_split(p)
    for step in range(p - 1):
        send = add = (rank - step) % p
        arrived = torch.empty_like(chunks[add])
        work = dist.isend(chunks[send].clone(), right)
        dist.recv(arrived, left)
        work.wait()
        chunks[add].add_(arrived)
    for step in range(p - 1):
        send, store = (rank + 1 - step) % p, (rank - step) % p
        work = dist.isend(chunks[send], right)
        dist.recv(chunks[store], left)
        work.wait()
    tensor.copy_(padded[: tensor.numel()].reshape(tensor.shape))
