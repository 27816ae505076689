import math

import torch
import torch.distributed as dist


def exchange(parts):
    parts = [part.contiguous() for part in parts]
    received = [torch.empty_like(parts[0]) for _ in parts]
    dist.all_to_all(received, parts)
    return received


def ulysses_attention(q, k, v):
    p = dist.get_world_size()
    queries, keys, values = (torch.cat(exchange(t.chunk(p, dim=1))) for t in (q, k, v))
    out = torch.zeros_like(queries)
    for i in range(len(queries)):
        scores = torch.einsum("hd,thd->ht", queries[i].double(), keys[: i + 1].double()) / math.sqrt(q.shape[2])
        out[i] = torch.einsum("ht,thd->hd", scores.softmax(1), values[: i + 1].double()).to(q.dtype)
    return torch.cat(exchange(out.split(len(q)) if len(q) else [out] * p), dim=1)
