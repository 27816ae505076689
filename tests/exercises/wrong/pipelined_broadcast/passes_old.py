"""Passes its own segments on.

Must get: holds rank 1's tensor, but must hold rank 0's tensor: no message brought it
"""

import torch.distributed as dist


def pipelined_broadcast(tensor, src, segments):
    p, r = dist.get_world_size(), dist.get_rank()
    me = (r - src) % p
    work = tensor.clone().contiguous().flatten()
    parts = list(work.tensor_split(segments))
    own = [x.clone() for x in parts]
    hs = []
    for x, o in zip(parts, own, strict=True):
        if me > 0:
            dist.recv(x, (r - 1) % p)
        if me < p - 1:
            hs.append(dist.isend(o, (r + 1) % p))
    for h in hs:
        h.wait()
    tensor.copy_(work.view_as(tensor))
