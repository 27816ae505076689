"""The folded rank gets its partner's sum before the rounds.

Must get: lacks the contribution of rank 1
Must not get: not added to what was there
"""

import torch
import torch.distributed as dist


def recursive_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    q = 1 << (p.bit_length() - 1)  # the largest power of two up to p
    total = tensor.clone(memory_format=torch.contiguous_format)
    arrived = torch.empty_like(total)
    if rank >= q:  # too many: hand over, and wait for the result
        dist.send(total, rank - q)
        dist.recv(total, rank - q)
    else:
        if rank + q < p:
            dist.recv(arrived, rank + q)
            total += arrived
            dist.send(total, rank + q)
        bit = 1
        while bit < q:
            swap = [dist.P2POp(dist.isend, total, rank ^ bit), dist.P2POp(dist.irecv, arrived, rank ^ bit)]
            for work in dist.batch_isend_irecv(swap):
                work.wait()
            total += arrived
            bit *= 2
    tensor.copy_(total)
