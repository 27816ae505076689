import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    """The vote first: without enough votes the updates are not even sent."""
    fine = healthy and bool(torch.isfinite(update).all())
    count = torch.tensor([float(fine)])
    dist.all_reduce(count)
    if count < at_least:
        return int(count)
    total = update.contiguous().clone() if fine else torch.zeros(update.shape, dtype=update.dtype)
    dist.all_reduce(total)
    weights += total / count.to(total.dtype)
    return int(count)
