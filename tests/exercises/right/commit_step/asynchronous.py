import torch
import torch.distributed as dist


def commit_step(weights, update, healthy, at_least):
    ok = healthy and not (torch.isnan(update).any() or torch.isinf(update).any())
    votes = torch.tensor(int(ok), dtype=torch.int32)
    total = torch.where(torch.tensor(ok), update, torch.zeros((), dtype=update.dtype)).contiguous()
    works = [dist.all_reduce(t, async_op=True) for t in (votes, total)]
    for work in works:
        work.wait()
    number = votes.item()
    if number < at_least:
        return number
    with torch.no_grad():
        weights.copy_(weights + total / number)
    return number
