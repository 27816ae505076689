import torch
import torch.distributed as dist


def heal(weights, step):
    p, me = dist.get_world_size(), dist.get_rank()
    table = torch.empty(p, dtype=torch.int32)
    dist.all_gather_into_tensor(table, torch.tensor([step], dtype=torch.int32))
    best = table.max().item()
    up_to_date = [r for r in range(p) if table[r] == best]
    turn = 0
    for r in range(p):
        if table[r] == best:
            continue
        source = up_to_date[-1 - turn % len(up_to_date)]
        turn += 1
        if me == source:
            dist.send(weights.contiguous(), r)
        elif me == r:
            new = torch.empty(weights.shape, dtype=weights.dtype)
            dist.recv(new, source)
            weights.copy_(new)
    return best
