import torch
import torch.distributed as dist


def swap(out, into, to, frm):
    ops = [dist.P2POp(dist.isend, out, to)] if out.numel() else []
    ops += [dist.P2POp(dist.irecv, into, frm)] if into.numel() else []
    if ops:
        for w in dist.batch_isend_irecv(ops):
            w.wait()


def go(held, empty, rank, p):
    if len(held) == p:
        return held
    into = empty((rank + len(held)) % p)
    swap(held[-1], into, (rank - 1) % p, (rank + 1) % p)
    return go([*held, into], empty, rank, p)


def all_gather_v(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    lengths = go([torch.tensor([len(tensor)])], lambda i: torch.empty(1, dtype=torch.int64), rank, p)
    n = {(rank + i) % p: int(x) for i, x in enumerate(lengths)}
    own = tensor.clone(memory_format=torch.contiguous_format)
    rows = go([own], lambda i: own.new_empty(n[i], *tensor.shape[1:]), rank, p)
    return rows[p - rank :] + rows[: p - rank]
