"""Forgets relu.

Must get: relu is missing
"""

import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    partial = (x @ a_shard) @ b_shard
    dist.all_reduce(partial)
    return partial
