import torch
import torch.distributed as dist


def distributed_argmax(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    place = flat.argmax().reshape(1)
    best = flat[place]
    values = [torch.empty_like(best) for _ in range(p)] if rank == 0 else None
    dist.gather(best, values, dst=0)
    winner = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        winner[0] = torch.cat(values).argmax()
    dist.broadcast(winner, src=0)
    owner = int(winner)
    best, place = best.clone(), place.clone()
    dist.broadcast(best, src=owner)
    dist.broadcast(place, src=owner)
    return best.item(), owner, place.item()
