"""Counts lines from 0.

Must get: the line before the right one
"""

import torch.distributed as dist

EVERY = -1


def diagnosis(program):
    p = dist.get_world_size()
    rank, line, kind = {
        "count_samples": (EVERY, 4, 1),
        "mean_loss": (p - 1, 4, 3),
        "mirror": (EVERY, 8, 5),
        "share_settings": (p // 2, 5, 4),
        "hand_out": (0, 10, 6),
        "mean_of_samples": (-(-9 // -(-9 // p)), 4, 8),
    }[program]
    return rank, line - 1, kind
