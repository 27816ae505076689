import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    """Each owner gets a whole number for each of its rows; then both sides know which rows travel, and in which order."""
    p, s = dist.get_world_size(), len(shard)
    wanted = torch.zeros(p * s, dtype=torch.int64)
    wanted[ids] = 1
    asked = torch.empty_like(wanted)
    dist.all_to_all_single(asked, wanted)
    outgoing = [shard[flags > 0] for flags in asked.view(p, s)]
    incoming = [shard.new_empty(int(flags.sum()), shard.shape[1]) for flags in wanted.view(p, s)]
    dist.all_to_all(incoming, outgoing)
    place = wanted.cumsum(0) - 1
    return torch.cat(incoming)[place[ids]]
