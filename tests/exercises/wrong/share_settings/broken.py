"""As it was.

Must get: with root
"""

import torch.distributed as dist


def share_settings(settings):
    rank, p = dist.get_rank(), dist.get_world_size()
    ranks_per_node = max(p // 2, 1)
    buffer = settings.contiguous()
    dist.broadcast(buffer, src=rank - rank % ranks_per_node)
    settings.copy_(buffer)
