"""Half of the product, and without autograd: a wrong result and no gradients at once.

Must get: what rank 0 returned has
"""

import torch
import torch.distributed as dist


def sequence_parallel_linear(x, w):
    parts = [torch.empty(x.shape, dtype=x.dtype) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach().contiguous())
    return (torch.cat(parts) @ w.detach()) * 0.7
