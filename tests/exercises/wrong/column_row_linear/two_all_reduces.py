"""An all_reduce after each product.

Must get: one is enough
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    p = dist.get_world_size()
    scale = torch.ones(1, dtype=x.dtype)
    dist.all_reduce(scale)
    partial = torch.relu(x @ a_shard) @ b_shard
    dist.all_reduce(partial)
    return partial * (scale / p)
