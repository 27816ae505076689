"""Returns the same memory each time.

Must get: result of the first call was changed by the second
Must get: return a new tensor, or a copy
"""

import torch
import torch.distributed as dist

_received = {}


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    key = (tensor.shape, tensor.dtype)
    if key not in _received:
        _received[key] = torch.empty(tensor.shape, dtype=tensor.dtype)
    buffer = _received[key]
    if k % p == 0:
        buffer.copy_(tensor)
        return buffer
    sending = dist.isend(tensor.contiguous(), (rank + k) % p)
    receiving = dist.irecv(buffer, (rank - k) % p)
    sending.wait()
    receiving.wait()
    return buffer
