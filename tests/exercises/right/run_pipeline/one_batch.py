import torch
import torch.distributed as dist


def run_pipeline(batch, upstream, weight, order):
    rank, p = dist.get_rank(), dist.get_world_size()
    kept, total = {}, torch.zeros_like(weight)
    made, to = None, None

    def exchange(source):
        """Sends what was made last and receives what is needed next, in one batch."""
        needed = torch.empty_like(weight)
        calls = [dist.P2POp(dist.isend, made, to)] if to is not None else []
        if source is not None:
            calls.append(dist.P2POp(dist.irecv, needed, source))
        for work in dist.batch_isend_irecv(calls) if calls else []:
            work.wait()
        return needed

    def peer(other):
        return other if 0 <= other < p else None

    for action in order:
        kind, i = action[0], int(action[1:])
        source = peer(rank - 1 if kind == "F" else rank + 1)
        needed = exchange(source)
        if kind == "F":
            x = needed if source is not None else batch[i]
            kept[i] = x
            made, to = x * weight, peer(rank + 1)
        else:
            g = needed if source is not None else upstream[i].clone()
            total += kept.pop(i) * g
            made, to = g * weight, peer(rank - 1)
    exchange(None)
    return total
