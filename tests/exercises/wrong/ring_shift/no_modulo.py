"""No way round the end of the ring.

Must get: Take the peer's number modulo the number of ranks
"""

import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    received = torch.empty(tensor.shape, dtype=tensor.dtype)
    sending = dist.isend(tensor.contiguous(), rank + k)
    dist.recv(received, rank - k)
    sending.wait()
    return received
