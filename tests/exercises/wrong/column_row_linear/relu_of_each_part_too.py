"""Relu between the products, and again on each rank's partial product.

Must get: relu was applied to each rank's partial product too
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    y = torch.relu(torch.relu(x @ a_shard) @ b_shard)
    dist.all_reduce(y)
    return y
