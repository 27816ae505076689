import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    vote = torch.tensor([1 if healthy and update.isfinite().all() else 0])
    mine = update.clone() if vote.item() else torch.zeros_like(update)
    dist.all_reduce(vote)
    total = mine.contiguous()
    dist.all_reduce(total)
    if vote.item() >= at_least:
        weights.add_(total.div(vote.item()))
    return vote.item()
