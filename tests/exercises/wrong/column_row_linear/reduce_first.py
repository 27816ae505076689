"""Multiplies by 2/p.

Must get: 2/p times the right one
Must not get: divides the size
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    y = (torch.relu(x @ a_shard) @ b_shard).contiguous()
    dist.all_reduce(y)
    return y / dist.get_world_size() * 2
