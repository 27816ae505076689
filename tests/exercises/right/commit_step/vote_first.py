import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    fine = healthy and bool(torch.isfinite(update).all())
    count = torch.tensor([float(fine)])
    dist.all_reduce(count)
    total = update.contiguous().clone() if fine else torch.zeros(update.shape, dtype=update.dtype)
    dist.all_reduce(total)
    if count >= at_least:
        weights += total / count.to(total.dtype)
    return int(count)
