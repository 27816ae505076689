"""Gathers all tokens on all ranks, and adds the results with an all_reduce.

Must get: all_to_all
"""

import torch
import torch.distributed as dist


def moe_top_k(tokens, experts, weights, expert_fns):
    rank, p, local = dist.get_rank(), dist.get_world_size(), len(expert_fns)

    def gathered(t):
        parts = [torch.empty_like(t.contiguous()) for _ in range(p)]
        dist.all_gather(parts, t.contiguous())
        return torch.cat(parts)

    x, numbers, scales = gathered(tokens), gathered(experts), gathered(weights)
    total = torch.zeros_like(x)
    for i, fn in enumerate(expert_fns):
        total += ((numbers == rank * local + i) * scales).sum(1, keepdim=True) * fn(x)
    dist.all_reduce(total)
    return total[rank * len(tokens) : (rank + 1) * len(tokens)].to(tokens.dtype)
