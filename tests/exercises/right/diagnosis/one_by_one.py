import torch.distributed as dist

EVERY = -1


def diagnosis(program):
    p = dist.get_world_size()
    if program == "count_samples":
        return EVERY, 4, 1
    if program == "mean_loss":
        return p - 1, 4, 3
    if program == "mirror":
        return EVERY, 8, 5
    if program == "share_settings":
        return p // 2, 5, 4
    if program == "hand_out":
        return 0, 10, 6
    each = -(-9 // p)
    return next(rank for rank in range(p) if rank * each >= 9), 4, 8
