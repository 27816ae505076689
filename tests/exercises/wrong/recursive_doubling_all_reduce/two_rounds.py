"""Two rounds of doubling for any number of ranks.

Must get: this is what 2 rounds of doubling give, which reach 4 ranks
"""

import torch
import torch.distributed as dist


def ex(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def recursive_doubling_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    q = 1 << (p.bit_length() - 1)
    buf = tensor.contiguous().clone()
    got = torch.empty_like(buf)
    if rank >= q:
        dist.send(buf, rank - q)
    elif rank + q < p:
        dist.recv(got, rank + q)
        buf += got
    if rank < q:
        for d in (1, 2):
            if d < q:
                ex(("s", buf, rank ^ d), ("r", got, rank ^ d))
                buf = buf + got
        if rank + q < p:
            dist.send(buf, rank + q)
    else:
        dist.recv(buf, rank - q)
    tensor.copy_(buf)
