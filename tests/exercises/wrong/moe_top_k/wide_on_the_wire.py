"""The tokens travel to their experts as float64.

Must get: send values in the tensor's own dtype, and indices and counts in an integer dtype
Must get: and float64 has twice the bytes
"""

import torch
import torch.distributed as dist


def exchange(x, take, give):
    box = x.new_empty((sum(take), *x.shape[1:]))
    dist.all_to_all_single(box, x.contiguous(), take, give)
    return box


def moe_top_k(tokens, experts, weights, expert_fns):
    p, L = dist.get_world_size(), len(expert_fns)
    n, _k = experts.shape
    where = [[i for i in range(n) if any(int(e) // L == r for e in experts[i])] for r in range(p)]
    give = torch.tensor([len(w) for w in where])
    take = torch.empty_like(give)
    dist.all_to_all_single(take, give)
    give, take = give.tolist(), take.tolist()
    index = torch.tensor([i for w in where for i in w], dtype=torch.int64)
    x = exchange(tokens[index].double(), take, give).to(tokens.dtype)
    e = exchange(experts[index], take, give)
    w = exchange(weights[index], take, give)
    first = dist.get_rank() * L
    wide = torch.promote_types(tokens.dtype, torch.float32)
    y = torch.zeros(x.shape, dtype=wide)
    for i, fn in enumerate(expert_fns):
        row, slot = (e == first + i).nonzero(as_tuple=True)
        y[row] += w[row, slot].to(wide)[:, None] * fn(x[row]).to(wide)
    back = exchange(y.to(tokens.dtype), give, take)
    out = torch.zeros(tokens.shape, dtype=wide)
    for at, i in enumerate(index.tolist()):
        out[i] += back[at].to(wide)
    return out.to(tokens.dtype)
