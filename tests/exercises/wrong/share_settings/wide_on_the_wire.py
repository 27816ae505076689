"""The settings travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def share_settings(settings):
    t = (
        settings.double().contiguous()
        if settings.dtype == torch.float32
        else settings.clone(memory_format=torch.contiguous_format)
    )
    dist.broadcast(t, 0)
    settings.copy_(t)
