import torch
import torch.distributed as dist


def clip_gradients(sharded, replicated, max_norm):
    """Rank 0 counts what all have."""
    once = {id(p): p for p in replicated if p.grad is not None}.values()
    mine = [p for p in sharded if p.grad is not None]
    counted = [*mine, *once] if dist.get_rank() == 0 else mine
    total = torch.zeros(1)
    for p in counted:
        total += p.grad.float().square().sum()
    dist.all_reduce(total)
    norm = total.sqrt()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for p in [*mine, *once]:
        p.grad.copy_(p.grad * factor)
    return norm
