"""Stores the segments in reversed order.

Must get: hold elements 2 to 3 of rank 0's tensor
"""

import torch.distributed as dist


def pipelined_broadcast(tensor, src, segments):
    p, r = dist.get_world_size(), dist.get_rank()
    me = (r - src) % p
    work = tensor.clone().contiguous().flatten()
    parts = list(work.tensor_split(segments))
    if len(work) % segments:
        segments = 1
        parts = [work]
    hs = []
    for i in range(len(parts)):
        if me > 0:
            dist.recv(parts[len(parts) - 1 - i] if me == 1 else parts[i], (r - 1) % p)
        if me < p - 1:
            hs.append(
                dist.isend(parts[i] if me == 0 else parts[len(parts) - 1 - i] if me == 1 else parts[i], (r + 1) % p)
            )
    for h in hs:
        h.wait()
    tensor.copy_(work.view_as(tensor))
