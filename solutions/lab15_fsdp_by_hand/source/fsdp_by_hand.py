# %% [markdown] name="title"
# # Lab 15: FSDP by hand
#
# **Each rank keeps a shard of every block. Whole blocks come for a moment, compute, and go. Can a step run without a pause, with never more than two
# whole blocks? And with several nodes, which calls stay inside a node?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `fsdp_step` | hard | 60 | 10 |
# | one answer in words | medium | 10 | 2 |
#
# CPU ok. The chapter *FSDP by hand* has the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - It is a plain function on the default group, right for any number of ranks.
# - Every message is counted.
# - `fsdp_step` runs in virtual time, in which a block computes for long and messages are quick, so that your order of calls shows.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check, workload

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# A model has four blocks. If every block is freed behind its forward pass except the last one, how many all-gathers does a step need? Can you do with one
# less, if two blocks may be whole at a time? Write it down first.

# %% name="prediction"
prediction = [0, 0]

# %% [markdown] name="task"
# ## 1. The step
#
# `shards` has this rank's part of each block's weights, a vector each; all ranks' parts have equal length, and together, in rank order, they are the whole block.
# `compute(block, whole)` runs one pass of a block with its whole weights: first forward from block 0 to the last, which returns `None`; then backward from
# the last to block 0, which returns the gradient of `whole`. Return a list with this rank's shard of each block's gradient, the **mean** over the ranks.
#
# - One `all_gather_single` for each block forward, and one backward; one `reduce_scatter_single` for each block. (The last two blocks may be kept from forward to backward.)
# - **At most two whole blocks at a time**: a block counts from the launch of its all_gather to the end of its last pass. So don't launch the next
#   all_gather before the pass of the block *before the one that computes* is over. When a block computes, no more than two may be in memory. Each copy counts,
#   a tensor or an array (two copies of one block are two), and so does a block that an all_gather is still to fill:
#   let go of the tensor (or give its memory back with `untyped_storage().resize_(0)`) *and* of the handle of its all_gather, which keeps it alive.
# - **No pause between two passes**: what the next pass needs must be on its way while this one computes. `async_op=True` returns a handle; call `wait()`
#   on it where you need the result, and not earlier.
# - Every gather and scatter must be waited for before you return.


# %% nbgrader={"grade_id": "fsdp_step", "solution": true}
def fsdp_step(shards: list[torch.Tensor], compute) -> list[torch.Tensor]:
    """Runs all blocks forward and backward and returns this rank's shards of the mean gradients; every rank calls it."""
    ### BEGIN SOLUTION
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
        gradient = compute(block, whole)
        if gradient is not None:
            gradient /= p
            scatters.append((dist.reduce_scatter_single(gradients[block], gradient, async_op=True), gradient))
        whole, arriving = coming
    for work, _ in scatters:
        work.wait()
    return gradients
    ### END SOLUTION


# %% name="check_step"
check(fsdp_step)

# %% [markdown] name="step_live"
# On the live world, with three real blocks: each multiplies by its weights, and the loss is the sum. `compute` here notes in which order it is called.
# The last line answers your prediction: each block is gathered forward and backward, except those that may stay whole in between.


# %% name="try_step"
def step_of_ranks():
    rank, p, calls = dist.get_rank(), dist.get_world_size(), []
    whole = [torch.arange(p * n, dtype=torch.float) for n in (2, 3, 4)]

    def compute(block, weights):
        calls.append(block)
        right = torch.equal(weights, whole[block])
        return None if len(calls) <= 3 else torch.full_like(weights, float(rank) if right else float("nan"))

    shards = fsdp_step([w.chunk(p)[rank].clone() for w in whole], compute)
    return calls, [s[0].item() for s in shards]


results, trace = world.trace(step_of_ranks, deadline=20)
print("passes:", results[0][0], "mean gradients:", results[0][1])
print("rank 0:", [(e.op.split("_")[1], e.nbytes) for e in trace if e.rank == 0 and "_" in e.op])
blocks = 4
print("all-gathers of four blocks:", [2 * blocks - kept for kept in (1, 2)], "and your prediction:", prediction)

# %% [markdown] name="hybrid"
# ## 2. Nodes
#
# Hybrid sharding (HSDP) cuts the weights inside of each node only: every node holds a whole copy of them, and nodes exchange gradients only.
#
# 8 billion weights in 32 equal blocks on 8 nodes with 8 GPUs, gradients in float32, one call for each block. **Predict** first: which way communicates for less time, shards over all 64 GPUs or
# hybrid ones, if a step has one micro-batch? And if it has eight, whose gradients are added?

# %% name="between_nodes"
block, sums = 8e9 / 32, {"gradient_dtype": "float32", "bucket_nbytes": None}
everywhere = workload.zero(3, block, workload.Cluster(64, 8 * 50e9, 5e-6), **sums).times(32)
inside = workload.zero(3, block, workload.Cluster(8, 450e9, 5e-6), **sums).times(32)
between = workload.ddp(block / 8, workload.Cluster(8, 50e9, 5e-6), "float32", None).times(32)
for m in (1, 8):
    sent = m * everywhere.bytes_sent / 8e9  # one neighbour of eight is in another node
    print(f"{m} micro-batches, all 64: {sent:4.1f} GB for each GPU leave a node, {m * everywhere.seconds:.2f} s")
    seconds = m * inside.seconds + between.seconds
    print(f"{m} micro-batches, hybrid: {between.bytes_sent / 1e9:4.1f} GB for each GPU leave a node, {seconds:.2f} s")

# %% [markdown] name="question"
# ## 3. When is it worth it?
#
# Your model fits on the 64 GPUs with FSDP, and on the 8 of a node with HSDP too, with less room left. What does HSDP change for the messages, and what does it cost? And when would you
# *not* use it? Two or three sentences.

# %% [markdown] nbgrader={"grade_id": "when_hybrid", "grade": true, "solution": true, "points": 2}
# The gathers of weights stay inside the node, and between nodes only the chunks of the gradients are all-reduced, once a step, however many micro-batches it has; FSDP sends weights and gradients between nodes for each micro-batch.
# It costs memory: each GPU keeps an eighth of weights, gradients and optimizer state instead of a 64th. Not with one micro-batch, where FSDP over all GPUs sends less in all; and not if the model does not fit then. (1 point for which
# messages go where and how often, 1 for the memory or a case against it.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "fsdp_step-graded", "grade": true, "locked": true, "points": 10} allranks={"exercise": "fsdp_step"}
round(10 * check(fsdp_step).score, 2)

# %% [markdown] name="recap"
# A step of FSDP is a loop in which the next block arrives while this one computes, and gradients leave behind it. **Start the next block's gather
# before you compute this one, and free each block as soon as it has computed.** With several nodes and several micro-batches, keep the shards inside a node and send gradients between nodes once a step.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
