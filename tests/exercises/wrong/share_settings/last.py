"""The last rank has the say.

Must get: last rank's settings
"""

import torch.distributed as dist


def share_settings(settings):
    buffer = settings.contiguous()
    dist.broadcast(buffer, src=dist.get_world_size() - 1)
    settings.copy_(buffer)
