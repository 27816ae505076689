"""To be sure.

Must get: calls broadcast 2 times
"""

import torch.distributed as dist


def share_settings(settings):
    buffer = settings.contiguous()
    dist.broadcast(buffer, src=0)
    dist.broadcast(buffer, src=0)
    settings.copy_(buffer)
