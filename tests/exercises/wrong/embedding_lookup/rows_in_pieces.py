"""Asks for a row as often as its id comes, and has it sent in pieces as short as a count.

Must get: more than ids and counts need
"""

import torch
import torch.distributed as dist


def embedding_lookup(ids, shard):
    p, rows = dist.get_world_size(), shard.shape[0]
    wanted = torch.full((p, 16), -1)
    for owner in range(p):
        mine = ids[ids // rows == owner]
        wanted[owner, : len(mine)] = mine
    asked = torch.empty_like(wanted)
    for i in range(16):
        piece = torch.empty(p, dtype=torch.int64)
        dist.all_to_all_single(piece, wanted[:, i].contiguous())
        asked[:, i] = piece
    answers = shard[asked % rows]
    found = torch.empty_like(answers)
    for i in range(16):
        for j in range(shard.shape[1]):
            piece = torch.empty(p, dtype=shard.dtype)
            dist.all_to_all_single(piece, answers[:, i, j].contiguous())
            found[:, i, j] = piece
    result = torch.empty((len(ids), shard.shape[1]), dtype=shard.dtype)
    for owner in range(p):
        mine = ids // rows == owner
        result[mine] = found[owner, : int(mine.sum())]
    return result
