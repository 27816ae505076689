"""Forgets the sum.

Must get: all_reduce is missing
"""

import torch


def column_row_linear(x, a_shard, b_shard):
    partial = torch.relu(x @ a_shard) @ b_shard
    return partial
