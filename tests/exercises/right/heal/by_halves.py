import torch
import torch.distributed as dist


def heal(weights, step):
    """A rank that is behind takes its weights in two messages."""
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = [torch.zeros((), dtype=torch.int64) for _ in range(p)]
    dist.all_gather(steps, torch.tensor(step))
    latest = max(int(s) for s in steps)
    fresh = [r for r, s in enumerate(steps) if s == latest]
    behind = [r for r, s in enumerate(steps) if s < latest]
    flat = weights.reshape(-1).clone()
    pieces = [piece for piece in flat.tensor_split(2) if piece.numel()]
    ops = []
    for number, taker in enumerate(behind):
        giver = fresh[number % len(fresh)]
        for piece in pieces:
            if rank == giver:
                ops.append(dist.P2POp(dist.isend, piece, taker))
            if rank == taker:
                ops.append(dist.P2POp(dist.irecv, piece, giver))
    if ops:
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    if rank in behind:
        weights.copy_(flat.reshape(weights.shape))
    return latest
