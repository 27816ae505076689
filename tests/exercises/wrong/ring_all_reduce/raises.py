"""Forgets an argument.

Must get: TypeError
Must get: line
"""

import torch.distributed as dist


def ring_all_reduce(tensor):
    chunks = tensor.flatten().tensor_split()
    dist.send(chunks[0], 1)
