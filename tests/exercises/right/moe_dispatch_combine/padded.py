import torch
import torch.distributed as dist


def moe_dispatch_combine(tokens, experts, expert_fn):
    """As in GShard: every expert has room for as many tokens of each rank as the fullest one needs."""
    p, n = dist.get_world_size(), len(tokens)
    counts = torch.bincount(experts, minlength=p)
    most = counts.max().repeat(p)
    everybodys = torch.empty_like(most)
    dist.all_to_all_single(everybodys, most)
    capacity = int(everybodys.max())
    slot = torch.zeros(n, dtype=torch.int64)
    for e in range(p):
        here = experts == e
        slot[here] = torch.arange(int(here.sum()))
    place = experts * capacity + slot
    sent = tokens.new_zeros(p * capacity, tokens.shape[1])
    sent[place] = tokens
    visitors = torch.empty_like(sent)
    dist.all_to_all_single(visitors, sent)
    made = expert_fn(visitors)
    back = torch.empty_like(made)
    dist.all_to_all_single(back, made)
    return back[place]
