"""Adds in float32.

Must get: Results are only wrong in float64
Must not get: only right in float32
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    y = torch.relu(x @ a_shard) @ b_shard
    y = y.float()
    dist.all_reduce(y)
    return y.to(x.dtype)
