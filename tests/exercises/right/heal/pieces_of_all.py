import torch
import torch.distributed as dist


def heal(weights, step):
    """Every rank that is up to date gives its piece of the weights to each rank that is behind."""
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = torch.zeros(p, dtype=torch.int64)
    steps[rank] = step
    dist.all_reduce(steps)
    latest = int(steps.max())
    fresh = [r for r in range(p) if steps[r] == latest]
    behind = [r for r in range(p) if steps[r] < latest]
    flat = weights.reshape(-1).clone()
    ops = []
    for giver, piece in zip(fresh, flat.tensor_split(len(fresh)), strict=True):
        for taker in behind:
            if piece.numel() and rank == giver:
                ops.append(dist.P2POp(dist.isend, piece, taker))
            if piece.numel() and rank == taker:
                ops.append(dist.P2POp(dist.irecv, piece, giver))
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    if rank in behind:
        weights.copy_(flat.reshape(weights.shape))
    return latest
