"""Waits for a condition that never comes.

Must get: endless loop
"""

import torch.distributed as dist


def ring_all_reduce(tensor):
    while dist.get_world_size() > 1:
        pass
