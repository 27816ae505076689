"""The chunks travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: send each chunk straight
"""

import torch
import torch.distributed as dist


def ex(*ops):
    ops = [dist.P2POp(dist.isend if k == "s" else dist.irecv, t, peer) for k, t, peer in ops]
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def rp():
    return dist.get_rank(), dist.get_world_size()


def pairwise_all_to_all(chunks):
    rank, p = rp()
    wide = torch.float64 if chunks[0].dtype == torch.float32 else chunks[0].dtype
    out = [None] * p
    out[rank] = chunks[rank].clone()
    for i in range(1, p):
        to, frm = (rank + i) % p, (rank - i) % p
        got = torch.empty(chunks[rank].shape, dtype=wide)
        ex(("s", chunks[to].to(wide).contiguous(), to), ("r", got, frm))
        out[frm] = got.to(chunks[0].dtype)
    return out
