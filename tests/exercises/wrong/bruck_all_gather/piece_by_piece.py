"""A message for each tensor.

Must get: send all tensors for one receiver in one message
"""

import torch
import torch.distributed as dist


def bruck_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    buffer = torch.zeros((p, *tensor.shape), dtype=tensor.dtype)
    buffer[0] = tensor
    have = 1
    while have < p:
        count = min(have, p - have)
        ops = []
        for i in range(count):
            ops.append(dist.P2POp(dist.isend, buffer[i], (rank - have) % p))
            ops.append(dist.P2POp(dist.irecv, buffer[have + i], (rank + have) % p))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        have += count
    return buffer.roll(rank, 0).flatten(0, 1)
