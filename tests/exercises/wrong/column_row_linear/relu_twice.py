"""relu at the end as well.

Must get: relu was applied to the result too
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    partial = torch.relu(x @ a_shard) @ b_shard
    dist.all_reduce(partial)
    return torch.relu(partial)
