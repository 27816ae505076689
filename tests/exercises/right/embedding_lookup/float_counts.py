import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, s = dist.get_world_size(), len(shard)
    wanted, place = torch.unique(ids, return_inverse=True)
    counts = torch.zeros(p)
    for owner in (wanted // s).tolist():
        counts[owner] += 1
    theirs = torch.zeros(p)
    dist.all_to_all_single(theirs, counts)
    ask, give = counts.int().tolist(), theirs.int().tolist()
    asked = torch.zeros(sum(give), dtype=torch.int64)
    dist.all_to_all_single(asked, wanted, give, ask)
    rows = torch.zeros(len(wanted), shard.shape[1], dtype=shard.dtype)
    dist.all_to_all_single(rows, shard[asked % s], ask, give)
    return rows[place]
