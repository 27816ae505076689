"""Broadcasts into a contiguous copy, and leaves it there.

Must get: nothing changed: the function must write
"""

import torch.distributed as dist


def share_settings(settings):
    settings = settings.contiguous()
    dist.broadcast(settings, src=0)
