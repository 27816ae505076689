import torch.distributed as dist


def share_settings(settings):
    buffer = settings.contiguous()
    dist.broadcast(buffer, group_src=0)
    if buffer is not settings:
        settings.copy_(buffer)
