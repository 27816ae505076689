"""The next block's all_gather is awaited before this block computes.

Must get: wait() for the all_gather of block
Must not get: launch the next block
"""

import torch
import torch.distributed as dist


def fsdp_step(shards: list[torch.Tensor], compute) -> list[torch.Tensor]:
    p, last = dist.get_world_size(), len(shards) - 1
    turns = [*range(last + 1), *reversed(range(last + 1))]

    def gather(block: int):
        whole = torch.empty(p * shards[block].numel(), dtype=shards[block].dtype)
        return whole, dist.all_gather_single(whole, shards[block], async_op=True)

    gradients = [torch.empty_like(shard) for shard in shards]
    scatters = []  # the handles, with the memory that must live as long
    whole, arriving = gather(0)
    for turn, block in enumerate(turns):
        arriving.wait()
        following = turns[turn + 1] if turn < len(turns) - 1 else block
        coming = gather(following) if following != block else (whole, arriving)
        coming[1].wait()
        gradient = compute(block, whole)
        if gradient is not None:
            gradient /= p
            scatters.append((dist.reduce_scatter_single(gradients[block], gradient, async_op=True), gradient))
        whole, arriving = coming
    for work, _ in scatters:
        work.wait()
    return gradients
