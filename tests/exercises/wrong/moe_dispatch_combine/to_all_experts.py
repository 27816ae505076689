"""All tokens go to all ranks, and each expert computes all of them.

Must get: each token goes to the rank of its expert, and nowhere else
"""

import torch
import torch.distributed as dist


def exchange(received, sent):
    """Lists of tensors of any sizes, as one all_to_all_single."""
    sizes = [t.numel() for t in received]
    whole = torch.cat([t.flatten() for t in received])
    dist.all_to_all_single(whole, torch.cat([t.flatten() for t in sent]), sizes, [t.numel() for t in sent])
    for tensor, part in zip(received, whole.split(sizes), strict=True):
        tensor.copy_(part.view(tensor.shape))


def moe_dispatch_combine(tokens, experts, expert_fn):
    p = dist.get_world_size()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(p)]
    exchange(counts, [torch.tensor([len(tokens)]) for _ in range(p)])
    visitors = [tokens.new_empty(int(n), tokens.shape[1]) for n in counts]
    exchange(visitors, [tokens.contiguous() for _ in range(p)])
    back = [torch.empty_like(tokens.contiguous()) for _ in range(p)]
    exchange(back, [expert_fn(v).contiguous() for v in visitors])
    made = tokens.clone(memory_format=torch.contiguous_format)
    for i, expert in enumerate(experts.tolist()):
        made[i] = back[expert][i]
    return made
