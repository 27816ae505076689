"""The ranks' norms are added, not their squares.

Must get: norms were added
Must not get: times the right one
"""

import torch
import torch.distributed as dist


def clip_gradients(sharded: list[torch.Tensor], replicated: list[torch.Tensor], max_norm: float):
    mine = [p.grad for p in sharded if p.grad is not None]
    everybodys = [p.grad for p in dict.fromkeys(replicated) if p.grad is not None]  # each parameter once
    counted = mine + everybodys if dist.get_rank() == 0 else mine
    total = torch.zeros(1, dtype=torch.float64)
    for gradient in counted:
        total += gradient.double().square().sum()
    total = total.sqrt()
    dist.all_reduce(total)
    norm = total.item()
    if norm > max_norm:
        for gradient in mine + everybodys:
            gradient.mul_(max_norm / norm)
    return norm
