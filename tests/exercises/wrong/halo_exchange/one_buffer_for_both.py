"""Both edges are received into one tensor.

Must get: the second receive wrote over the first
"""

import torch
import torch.distributed as dist


def halo_exchange(edge):
    p, r = dist.get_world_size(), dist.get_rank()
    left, right = (r - 1) % p, (r + 1) % p
    if p == 1:
        return edge.clone(), edge.clone()
    e = edge.contiguous()
    got = torch.empty_like(e)
    results = []
    for to, source in ((right, left), (left, right)):
        for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, e, to), dist.P2POp(dist.irecv, got, source)]):
            w.wait()
        results.append(got)
    return tuple(results)
