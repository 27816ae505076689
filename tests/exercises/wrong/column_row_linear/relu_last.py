"""relu at the end.

Must get: relu came after
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    partial = (x @ a_shard) @ b_shard
    dist.all_reduce(partial)
    return torch.relu(partial)
