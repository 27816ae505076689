# %% [markdown] name="title"
# # Lab 17: survive
#
# **In a large job something fails every few hours. Which ranks have a say in a step? How does a rank that comes back get its weights? And who gets which rows when there are fewer ranks?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `commit_step` | medium | 30 | 6 |
# | `heal` | medium | 35 | 6 |
# | `reshard` | medium to hard | 40 | 6 |
# | one answer in words | easy | 10 | 2 |
#
# CPU ok. The chapter *Survive* has the ideas: the vote, healing from a rank that is alive, and resharding.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up. Tensors may be views with gaps, which the wire does not take, and they may be empty.
# - Every byte and every round is counted. Inputs stay as they are, unless the text says that they change.
# - A rank that really dies ends a run on the wire, so what is marked is what the *others* do: which ranks count, who gives what to whom.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# Four ranks have the updates 2, 4, 6 and NaN. `at_least` is 3. By how much do the weights of *each* rank grow? Write it down first, also for the rank with the NaN.

# %% name="prediction"
prediction = [0, 0, 0, 0]

# %% [markdown] name="commit_task"
# ## 1. A step that only healthy ranks decide
#
# All ranks have equal `weights`. Each has an `update` of the same shape and dtype, and says whether it is `healthy`. A rank **counts** if it says that it is healthy
# *and* all numbers of its update are finite.
#
# - If at least `at_least` ranks count, the mean of *their* updates is added to `weights`, in place, on **every** rank, also on those that don't count. Else no weight changes.
# - Return how many ranks count (an int). It is the same number on every rank.
# - `all_reduce` only: twice at most, and no more bytes than the update and one count. Once is enough: put the count behind the update. (In bfloat16 a count is exact only up to 256: in a large job give it a call and a dtype of its own.)
# - What is 0 times NaN?


# %% nbgrader={"grade_id": "commit_step", "solution": true}
def commit_step(weights: torch.Tensor, update: torch.Tensor, healthy: bool, at_least: int) -> int:
    """Adds the mean of the healthy ranks' updates if there are enough of them; returns their number."""
    ### BEGIN SOLUTION
    message = torch.zeros(update.numel() + 1, dtype=update.dtype)
    if healthy and update.isfinite().all():
        message[:-1] = update.reshape(-1)
        message[-1] = 1
    dist.all_reduce(message)
    count = int(message[-1])
    if count >= at_least:
        weights += (message[:-1] / count).reshape(weights.shape)
    return count
    ### END SOLUTION


# %% name="check_commit"
check(commit_step)

# %% [markdown] name="commit_live"
# On the live world, the last rank has a NaN. Was your prediction right?


# %% name="try_commit"
def one_step():
    rank, p = dist.get_rank(), dist.get_world_size()
    update = torch.tensor([2.0 * (rank + 1) if rank < p - 1 else float("nan")])
    weights = torch.zeros(1)
    return commit_step(weights, update, True, p - 1), weights.item()


print("count and weight of each rank:", world.run(one_step, deadline=20))

# %% [markdown] name="heal_task"
# ## 2. Weights for the ranks that are behind
#
# Some ranks were away. Each rank knows its `step`, the number of steps that it has made. Ranks with the largest step are **up to date** and have equal
# weights; the others are **behind**, and what is in their weights is of no use. Bring them up to date, in place, and return the largest step.
#
# - Nobody knows the others' steps. Tell them with `all_gather` or `all_reduce`: a number a rank, not the weights.
# - The weights go point to point, once to each rank that is behind. A rank that is up to date receives none.
# - Share the work out: if 4 are behind and 2 are up to date, each of these two sends twice.
# - Every rank must come to the same pairs, without another message. So decide them by the steps alone.


# %% nbgrader={"grade_id": "heal", "solution": true}
def heal(weights: torch.Tensor, step: int) -> int:
    """Gives the newest weights to the ranks that are behind; returns the largest step."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = [torch.zeros(1, dtype=torch.int64) for _ in range(p)]
    dist.all_gather(steps, torch.tensor([step]))
    latest = max(int(s) for s in steps)
    fresh = [r for r in range(p) if int(steps[r]) == latest]
    behind = [r for r in range(p) if int(steps[r]) < latest]
    ops, arrived = [], torch.empty(weights.shape, dtype=weights.dtype)
    for i, taker in enumerate(behind):
        giver = fresh[i % len(fresh)]
        if rank == giver:
            ops.append(dist.P2POp(dist.isend, weights.contiguous(), taker))
        if rank == taker:
            ops.append(dist.P2POp(dist.irecv, arrived, giver))
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    if step < latest:
        weights.copy_(arrived)
    return latest
    ### END SOLUTION


# %% name="check_heal"
check(heal)

# %% [markdown] name="heal_live"
# On the live world: rank 0 comes back with nothing, all others are at step 7 and have the weight 5.


# %% name="try_heal"
def comes_back():
    rank = dist.get_rank()
    weights = torch.full((2,), 5.0 if rank else 0.0)
    return heal(weights, 7 if rank else 0), weights.tolist()


print("step and weights of each rank:", world.run(comes_back, deadline=20))

# %% [markdown] name="reshard_task"
# ## 3. The same rows on fewer ranks, or on more
#
# A matrix is split over the ranks by rows, in the order of ranks: rank $r$ has `before[r]` rows, in `shard`. Afterwards it must have `after[r]` rows. Both
# lists are the same on every rank and have equal sums; a rank may have no rows at all. Return this rank's rows.
#
# - Each row goes straight from the rank that has it to the rank that has it afterwards. A row that stays is not sent.
# - Nothing else travels: every rank can compute from the two lists who needs what. Where nothing is needed send no message, not an empty one (a size
#   of 0 in a list of `all_to_all_single` is none).
# - `batch_isend_irecv`, or `all_to_all_single` with lists of sizes. All at the same time: nobody waits for a turn.
# - Rank $r$ has the rows from $a_r = \sum_{i<r} \text{before}_i$ on. Which rows do two ranges have in common?


# %% nbgrader={"grade_id": "reshard", "solution": true}
def reshard(shard: torch.Tensor, before: list[int], after: list[int]) -> torch.Tensor:
    """Returns this rank's rows after the split `after`, of rows that are split as `before` says."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()

    def common(owner: int, taker: int) -> int:
        first = max(sum(before[:owner]), sum(after[:taker]))
        last = min(sum(before[: owner + 1]), sum(after[: taker + 1]))
        return max(last - first, 0)

    result = torch.empty((after[rank], *shard.shape[1:]), dtype=shard.dtype)
    arriving = [common(owner, rank) for owner in range(p)]
    leaving = [common(rank, taker) for taker in range(p)]
    dist.all_to_all_single(result, shard.contiguous(), arriving, leaving)
    return result
    ### END SOLUTION


# %% name="check_reshard"
check(reshard)

# %% [markdown] name="reshard_live"
# On the live world: three rows a rank go to the first half of the ranks. A row is its number.


# %% name="try_reshard"
def to_half():
    rank, p = dist.get_rank(), dist.get_world_size()
    half = max(p // 2, 1)
    after = [3 * p // half + (r < 3 * p % half) if r < half else 0 for r in range(p)]
    rows = torch.arange(3.0 * rank, 3.0 * rank + 3).view(3, 1)
    return reshard(rows, [3] * p, after).flatten().tolist()


print("rows of each rank:", world.run(to_half, deadline=20))

# %% [markdown] name="question"
# ## 4. How often?
#
# A job fails every 2 hours on average. A checkpoint takes 100 s in which the job waits. After how many minutes should it save again, and which share of the time is lost, without
# the restarts? Then `async_save` makes it 4 s, and the file is written in the 96 s behind that. What are the two numbers now, if a failure comes while it is written? Two or three sentences.

# %% [markdown] nbgrader={"grade_id": "how_often", "grade": true, "solution": true, "points": 2}
# T = sqrt(2 x 100 x 7200) = 1200 s = 20 minutes, and sqrt(2 x 100 / 7200) = 17 % are lost. With 4 s: T = sqrt(2 x 4 x 7200) = 240 s = 4 minutes, and sqrt(2 x 4 / 7200) = 3.3 % are lost: a 25th of the cost, a fifth of the
# interval, a fifth of the loss. But a checkpoint counts only once it is written, so each failure loses 96 s more: 96 / 7200 = 1.3 %, together 4.7 % (4.6 % in the chapter's simulation). (1 point for the first pair, 1 for the second with the root or with what is lost while the file is written.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "commit_step-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "commit_step"}
round(6 * check(commit_step).score, 2)

# %% nbgrader={"grade_id": "heal-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "heal"}
round(6 * check(heal).score, 2)

# %% nbgrader={"grade_id": "reshard-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "reshard"}
round(6 * check(reshard).score, 2)

# %% [markdown] name="recap"
# A job survives because of copies: a step counts without the rank that failed, a rank that comes back gets its weights from one that is alive, and rows find
# their new ranks without a file. **All ranks must come to the same decision from the same numbers, and only weights that are missing need to be sent.**

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
