"""Ranks are numbered by xor with the root.

Must get: rank q is rank (q + src) mod p
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    p, r = dist.get_world_size(), dist.get_rank()
    v = r ^ src
    x = tensor.contiguous()
    step = 1
    while step < p:
        if v < step:
            partner = (v + step) ^ src
            if partner < p:
                dist.send(x, partner)
        elif v < 2 * step:
            dist.recv(x, (v - step) ^ src)
        step *= 2
    tensor.copy_(x)
