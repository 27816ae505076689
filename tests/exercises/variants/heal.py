import torch
import torch.distributed as dist

MINE = 5  # the slow rank


def heal(weights, step):
    p, me = dist.get_world_size(), dist.get_rank()
    table = torch.empty(p, dtype=torch.int32)
    dist.all_gather_into_tensor(table, torch.tensor([step], dtype=torch.int32))
    best = table.max().item()
    fresh = [r for r in range(p) if table[r] == best]
    givers = [r for r in fresh if r != MINE % p] or fresh
    old = [r for r in range(p) if table[r] != best]
    for turn, r in enumerate(old):
        giver = givers[turn % len(givers)]
        if me == giver:
            dist.send(weights.contiguous(), r)
        elif me == r:
            new = torch.empty(weights.shape, dtype=weights.dtype)
            dist.recv(new, giver)
            weights.copy_(new)
    return best
