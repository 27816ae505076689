"""All at once, by a collective that goes by the name of a send.

Must get: a collective is unknown
"""

import torch
import torch.distributed as dist


def pairwise_all_to_all(chunks):
    rank, p = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    received = [torch.empty(chunks[rank].shape, dtype=chunks[rank].dtype) for _ in range(p)]
    group._collective("isend", [chunk.contiguous() for chunk in chunks], received).wait()
    return received
