import torch
import torch.distributed as dist


def moe_capacity(tokens, experts, capacity, expert_fns):
    """A stable sort by expert; the place is the distance from the expert's first token."""
    p, local = dist.get_world_size(), len(expert_fns)
    order = torch.argsort(experts, stable=True)
    counts = torch.bincount(experts, minlength=p * local)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(experts)) - starts[experts[order]]
    fits = place < capacity
    rows, slots = order[fits], (experts[order] * capacity + place)[fits]
    outgoing = torch.full(
        (p * local * capacity, tokens.shape[1]), 7.0, dtype=tokens.dtype
    )  # what padding is does not matter
    outgoing.index_copy_(0, slots, tokens[rows])
    incoming = torch.empty_like(outgoing)
    dist.all_to_all_single(incoming, outgoing)
    made = torch.cat(
        [expert_fns[i // capacity % local](incoming[i : i + capacity]) for i in range(0, len(incoming), capacity)]
    )
    dist.all_to_all_single(outgoing, made)
    result = tokens.clone()
    result[rows] = outgoing[slots]
    return result
