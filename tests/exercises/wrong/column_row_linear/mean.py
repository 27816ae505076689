"""Averages.

Must get: 1/p times the right one on every rank
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    partial = torch.relu(x @ a_shard) @ b_shard
    dist.all_reduce(partial)
    return partial / dist.get_world_size()
