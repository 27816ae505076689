import torch
import torch.distributed as dist


def exchange(received, sent):
    """Lists of tensors of any sizes, as one all_to_all_single."""
    sizes = [t.numel() for t in received]
    whole = torch.cat([t.flatten() for t in received])
    dist.all_to_all_single(whole, torch.cat([t.flatten() for t in sent]), sizes, [t.numel() for t in sent])
    for tensor, part in zip(received, whole.split(sizes), strict=True):
        tensor.copy_(part.view(tensor.shape))


def embedding_lookup(ids, shard):
    """Ids in a table with a line for each owner, padded to the longest; flags as whole numbers say which of them count."""
    rank, p, s = dist.get_rank(), dist.get_world_size(), len(shard)
    wanted, place = torch.unique(ids, return_inverse=True)
    owner = wanted // s
    counts = torch.bincount(owner, minlength=p)
    everybodys = torch.empty(p, dtype=torch.int64)
    dist.all_to_all_single(everybodys, counts.max().repeat(p))
    longest = int(everybodys.max())
    asks = torch.full((p, longest), -1)
    for r in range(p):
        mine = wanted[owner == r]
        asks[r, : len(mine)] = mine
    asked = torch.empty_like(asks)
    dist.all_to_all_single(asked, asks)
    outgoing = [shard[row[row >= 0] - rank * s] for row in asked]
    incoming = [shard.new_empty(int(n), shard.shape[1]) for n in counts]
    exchange(incoming, outgoing)
    return torch.cat(incoming)[place]
