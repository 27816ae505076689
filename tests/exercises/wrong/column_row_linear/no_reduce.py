"""Forgets the sum.

Must get: no rank sent a message
"""

import torch


def column_row_linear(x, a_shard, b_shard):
    partial = torch.relu(x @ a_shard) @ b_shard
    return partial
