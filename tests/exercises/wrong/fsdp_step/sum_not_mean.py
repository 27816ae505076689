"""Forgets to divide.

Must get: p times the right one on every rank
"""

import torch
import torch.distributed as dist


def fsdp_step(shards, compute):
    p, count = dist.get_world_size(), len(shards)
    turns = [*range(count), *reversed(range(count))]
    wholes = {}

    def launch(k):
        if k < len(turns):
            shard = shards[turns[k]]
            whole = shard.new_empty(p * shard.numel())
            wholes[k] = whole, dist.all_gather_single(whole, shard, async_op=True)

    launch(0)
    found, pending = [torch.zeros_like(s) for s in shards], []
    for k, block in enumerate(turns):
        whole, work = wholes.pop(k)
        work.wait()
        launch(k + 1)
        gradient = compute(block, whole)
        if gradient is not None:
            pending.append((dist.reduce_scatter_single(found[block], gradient, async_op=True), gradient))
    for work, _ in pending:
        work.wait()
    return found
