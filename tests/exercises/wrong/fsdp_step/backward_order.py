"""Returns the gradients as they were made: the last block's first.

Must get: the gradients are in the order of the backward pass
"""

import torch
import torch.distributed as dist


def fsdp_step(shards, compute):
    p, n = dist.get_world_size(), len(shards)
    turns = [*range(n), *reversed(range(n))]

    def gather(block):
        whole = shards[block].new_empty(p * shards[block].numel())
        return whole, dist.all_gather_single(whole, shards[block], async_op=True)

    made, works = [], []
    now = gather(0)
    for block, following in zip(turns, [*turns[1:], turns[-1]], strict=True):
        now[1].wait()
        coming = now if following == block else gather(following)
        gradient = compute(block, now[0])
        if gradient is not None:
            made.append(torch.empty_like(shards[block]))
            gradient /= p
            works.append(dist.reduce_scatter_single(made[-1], gradient, async_op=True))
        now = coming
    for work in works:
        work.wait()
    return made
