"""Takes the partner's number counted from dst for its rank.

Must get: which is this rank itself
Must get: is one of the two left out here
Must not get: Invalid destination
"""

import torch
import torch.distributed as dist


def tree_reduce(tensor, dst):
    p, r = dist.get_world_size(), dist.get_rank()
    v = (r - dst) % p
    acc = tensor.clone(memory_format=torch.contiguous_format)
    buf = torch.empty_like(acc)
    d = 1
    while d < p:
        if v % (2 * d) == d:
            dist.send(acc, (v - d) % p)
            break
        if v + d < p:
            dist.recv(buf, (v + d + dst) % p)
            acc += buf
        d *= 2
    if v == 0:
        tensor.copy_(acc)
