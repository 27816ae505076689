"""Each looks into its own table.

Must get: its own table
"""

import torch.distributed as dist


def hand_out(table):
    return table[dist.get_rank()].clone()
