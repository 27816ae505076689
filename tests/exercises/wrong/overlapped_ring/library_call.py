"""Calls the collective itself.

Must get: send, recv, isend, irecv
"""

import torch.distributed as dist


def overlapped_ring(tensor, work, pieces):
    whole = tensor.contiguous()
    handle = dist.all_reduce(whole, async_op=True)
    for _ in range(pieces):
        work()
    handle.wait()
    tensor.copy_(whole)
