"""Does not count back from src to the real rank.

Must get: Counted from src, rank q is rank (q + src) mod p
Must not get: modulo the number of ranks
"""

import torch.distributed as dist


def tree_broadcast(tensor, src):
    p = dist.get_world_size()
    me = (dist.get_rank() - src) % p
    work = tensor.clone().contiguous()
    mask = 1
    while mask < p:
        if me < mask:
            if me + mask < p:
                dist.send(work, me + mask)
        elif me < 2 * mask:
            dist.recv(work, me - mask)
        mask *= 2
    tensor.copy_(work)
