"""Lists of tensors of different sizes: NCCL takes them, gloo does not.

Must get: all_to_all takes lists of tensors of one size on gloo
"""

import torch
import torch.distributed as dist


def moe_dispatch_combine(tokens, experts, expert_fn):
    p, width = dist.get_world_size(), tokens.shape[1]
    places = [(experts == expert).nonzero().flatten() for expert in range(p)]
    outgoing = [tokens[place].contiguous() for place in places]
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(p)]
    dist.all_to_all(counts, [torch.tensor([len(t)]) for t in outgoing])
    incoming = [torch.empty((int(n), width), dtype=tokens.dtype) for n in counts]
    dist.all_to_all(incoming, outgoing)
    answers = [expert_fn(batch).contiguous() for batch in incoming]
    returned = [torch.empty_like(batch) for batch in outgoing]
    dist.all_to_all(returned, answers)
    result = torch.zeros(tokens.shape, dtype=tokens.dtype)
    for place, batch in zip(places, returned, strict=True):
        result[place] = batch
    return result
