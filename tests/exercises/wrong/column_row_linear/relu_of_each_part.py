"""Relu of each rank's partial product, and none between the two products.

Must get: relu came after the second product, on each rank's partial product
"""

import torch
import torch.distributed as dist


def column_row_linear(x, a_shard, b_shard):
    y = torch.relu(x @ a_shard @ b_shard)
    dist.all_reduce(y)
    return y
