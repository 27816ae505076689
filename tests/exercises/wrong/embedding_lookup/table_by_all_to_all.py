"""Sends the whole shard to everybody.

Must get: ask for each row once
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_to_all(parts, [shard] * len(parts))
    return torch.cat(parts)[ids]
