"""Sends the wrong chunk in both halves: not the one that it added to, then not the one that is complete.

Must get: must send the chunk that it added last
Must get: off by one chunk
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
        send, add = (rank + step) % p, (rank + step - 1) % p
        arrived = torch.empty_like(chunks[add])
        work = dist.isend(chunks[send].clone(), right)
        dist.recv(arrived, left)
        work.wait()
        chunks[add].add_(arrived)
    for step in range(p - 1):
        send, store = (rank - step) % p, (rank - step - 1) % p
        work = dist.isend(chunks[send], right)
        dist.recv(chunks[store], left)
        work.wait()
    tensor.copy_(padded[: tensor.numel()].reshape(tensor.shape))
