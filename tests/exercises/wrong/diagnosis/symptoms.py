"""Names the lines that notice.

Must get: this line only shows what another line did wrong
"""

import torch.distributed as dist

EVERY = -1


def diagnosis(program):
    p = dist.get_world_size()
    return {
        "count_samples": (EVERY, 5, 1),
        "mean_loss": (p - 1, 6, 3),
        "mirror": (EVERY, 8, 5),
        "share_settings": (p // 2, 5, 4),
        "hand_out": (0, 13, 6),
        "mean_of_samples": (-(-9 // -(-9 // p)), 4, 8),
    }[program]
