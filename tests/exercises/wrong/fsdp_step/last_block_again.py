"""Keeps the last two blocks from forward to backward, and gathers the last one again all the same.

Must get: 3 twice
Must get: block 3 is gathered again
Must not get: free it, and gather it again
"""

import torch
import torch.distributed as dist


def fsdp_step(shards, compute):
    p, count = dist.get_world_size(), len(shards)
    turns = [*range(count), *reversed(range(count))]
    wholes, kept = {}, None

    def launch(k):
        if k < len(turns) and k != count + 1:
            shard = shards[turns[k]]
            whole = shard.new_empty(p * shard.numel())
            wholes[k] = whole, dist.all_gather_single(whole, shard, async_op=True)

    launch(0)
    found, pending = [torch.zeros_like(s) for s in shards], []
    for k, block in enumerate(turns):
        whole, work = wholes.pop(k) if k != count + 1 else kept
        kept = (whole, work) if k == count - 2 else None if k > count else kept
        work.wait()
        launch(k + 1)
        gradient = compute(block, whole)
        if gradient is not None:
            pending.append((dist.reduce_scatter_single(found[block], gradient, async_op=True), gradient))
    for work, _ in pending:
        work.wait()
    for gradient in found:
        gradient /= p
    return found
