"""The rows travel as float64.

Must get: send the tensor's own dtype
Must get: and float64 has twice the bytes
Must not get: goes straight to the rank
"""

import torch
import torch.distributed as dist


def rp():
    return dist.get_rank(), dist.get_world_size()


def reshard(shard, before, after):
    from itertools import accumulate

    rank, p = rp()
    a, b = ([0, *accumulate(x)] for x in (before, after))

    def common(s, d):
        return len(range(max(a[s], b[d]), min(a[s + 1], b[d + 1])))

    give, take = [common(rank, r) for r in range(p)], [common(r, rank) for r in range(p)]
    wide = torch.float64 if shard.dtype in (torch.float32, torch.bfloat16) else shard.dtype
    out = torch.empty(after[rank], *shard.shape[1:], dtype=wide)
    dist.all_to_all_single(out, shard.to(wide).contiguous(), take, give)
    return out.to(shard.dtype)
