"""split(k) makes parts of k elements.

Must get: only 4 segments are sent
"""

import torch.distributed as dist


def pipelined_broadcast(tensor, src, segments):
    rank, p = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % p
    work = tensor.contiguous().view(-1)
    sending = []
    for part in work.split(segments):
        if me:
            dist.recv(part, (rank - 1) % p)
        if me < p - 1:
            sending.append(dist.isend(part, (rank + 1) % p))
    for one in sending:
        one.wait()
    tensor.copy_(work.view_as(tensor))
