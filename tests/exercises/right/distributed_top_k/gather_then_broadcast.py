import torch
import torch.distributed as dist


def distributed_top_k(tensor: torch.Tensor, k: int):
    """Rank 0 chooses; in Python, for the sake of clear tie-breaking."""
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)

    def key(item):
        value, owner, index = item
        return (0, 0, owner, index) if value != value else (1, -value, owner, index)

    mine = sorted(((v, rank, i) for i, v in enumerate(flat.tolist())), key=key)[:k]
    index = torch.tensor([i for _, _, i in mine], dtype=torch.int64)
    value = flat[index].clone()
    if rank == 0:
        values = [torch.empty_like(value) for _ in range(p)]
        indices = [torch.empty_like(index) for _ in range(p)]
        dist.gather(value, values)
        dist.gather(index, indices)
        found = [(v, r, i) for r in range(p) for v, i in zip(values[r].tolist(), indices[r].tolist(), strict=True)]
        found = sorted(found, key=key)[:k]
        where = {(r, i): values[r][j] for r in range(p) for j, i in enumerate(indices[r].tolist())}
        out = torch.stack([where[r, i] for _, r, i in found]) if found else flat[:0].clone()
        places = torch.tensor([[r, i] for _, r, i in found], dtype=torch.int64).reshape(-1, 2)
    else:
        dist.gather(value)
        dist.gather(index)
        out = torch.empty(k, dtype=flat.dtype)
        places = torch.empty((k, 2), dtype=torch.int64)
    places = places.to(torch.int32)
    dist.broadcast(out, 0)
    dist.broadcast(places, 0)
    places = places.long()
    return out, places[:, 0].contiguous(), places[:, 1].contiguous()
