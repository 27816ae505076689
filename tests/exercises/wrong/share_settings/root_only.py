"""Only the root calls it.

Must get: never did
"""

import torch.distributed as dist


def share_settings(settings):
    buffer = settings.contiguous()
    if dist.get_rank() == 0:
        dist.broadcast(buffer, src=0, async_op=True)
    settings.copy_(buffer)
