import torch
import torch.distributed as dist


def ring_all_gather(tensor: torch.Tensor) -> torch.Tensor:
    """Half of the tensors come from the left, half from the right."""
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    parts = {rank: tensor.contiguous()}
    for step in range(1, p // 2 + 1):
        from_left, from_right = (rank - step) % p, (rank + step) % p
        works = [dist.isend(parts[(rank - step + 1) % p], right, tag=1)]
        parts[from_left] = torch.empty_like(parts[rank])
        works.append(dist.irecv(parts[from_left], left, tag=1))
        if from_right != from_left:
            works.append(dist.isend(parts[(rank + step - 1) % p], left, tag=2))
            parts[from_right] = torch.empty_like(parts[rank])
            works.append(dist.irecv(parts[from_right], right, tag=2))
        for work in works:
            work.wait()
    return torch.cat([parts[r] for r in range(p)])
