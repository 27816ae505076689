"""Ends one round too early where p is no power of two.

Must get: rank 0 received nothing
Must not get: rank 0's tensor was sent
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    p = dist.get_world_size()
    me = (dist.get_rank() - src) % p
    work = tensor.clone().contiguous()
    for k in range(p.bit_length() - 1):
        mask = 1 << k
        if me < mask:
            if me + mask < p:
                dist.send(work, (me + mask + src) % p)
        elif me < 2 * mask:
            dist.recv(work, (me - mask + src) % p)
    tensor.copy_(work)
