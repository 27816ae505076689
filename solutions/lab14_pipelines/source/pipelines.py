# %% [markdown] name="title"
# # Lab 14: pipelines
#
# **Each of $p$ GPUs has a stage of a model, and a batch passes the stages in $m$ micro-batches. In which order does each GPU work, so that it waits little
# and keeps little? And what does the loop that carries out such an order look like, so that no two GPUs wait for each other?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `zero_bubble_order` | hard | 45 | 6 |
# | `run_pipeline` | hard | 45 | 8 |
# | one answer in words | medium | 10 | 2 |
#
# CPU ok. The chapter *Pipelines* has the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - The orders of all ranks are put together from all ranks and run in virtual time: they must be complete, free of deadlock, short, and keep little.
# - `run_pipeline` uses `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
# - Every message is counted, and every send may wait for its receiver.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check, pipelines

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# `F3` is the forward pass of micro-batch 3 on a rank, `B3` its backward pass, which takes twice as long. A rank keeps what `F3` computed until `B3` is
# over. The simplest order is GPipe: all forward passes, then all backward passes. **Before you run the next two cells:** how long does it take with 4
# ranks and 8 micro-batches, if a forward pass takes 1? And how many activations does rank 0 keep at most?

# %% name="prediction"
prediction = [0, 0]

# %% name="gpipe_picture"
gpipe = pipelines.timeline(pipelines.orders("gpipe", ranks=4, micro_batches=8))
print(gpipe)
pipelines.picture(gpipe)

# %% [markdown] name="zero_task"
# ## 1. Wait less
#
# 1F1B (the chapter has it) is as long as GPipe, but keeps less: rank $r$ runs $p-r$ forward passes ahead, then one backward and one forward in turn. Now make it shorter too.
#
# Backward has two parts: `I3` makes the gradient of the *input*, for which the rank before waits, and `W3` that of the *weights*, for which nobody waits.
# ZB-H1 (Qi et al., arXiv:2401.10241) is 1F1B with backward cut in this way: the `W` come later, where a rank would be idle, as long as no rank keeps more than the first one does in 1F1B.
# `F`, `I` and `W` take 1 each. Return the actions of one rank again, now with `F`, `I` and `W`; $m \geq p$.
#
# - On each rank every micro-batch has its `F`, then its `I`, then its `W`, once each.
# - A rank waits for `F3` of the rank before it and for `I3` of the rank behind it. The lists together must not deadlock.
# - The pipeline must take at most $3m + p - 1$: a third of 1F1B's bubble.
# - A rank keeps what `F3` computed until `W3` is over, and keeps at most $\min(p, m)$ activations.
#
# Keep the `F` and the `I` where `F` and `B` were. On which rank may a `W` come at once, and on which one is the rank before it waiting?


# %% nbgrader={"grade_id": "zero_bubble_order", "solution": true}
def zero_bubble_order(rank: int, stages: int, micro_batches: int) -> list[str]:
    """Returns the actions of this rank, "F0", "I0", "W0" and so on, in their order."""
    ### BEGIN SOLUTION
    order: list[str] = []
    begun = late = 0
    for turned in range(micro_batches):
        while begun < micro_batches and begun - turned < stages - rank:
            order.append(f"F{begun}")
            begun += 1
        order.append(f"I{turned}")
        if turned >= rank:  # later ranks put their weights' gradients off, since the ranks before them wait for I
            order.append(f"W{late}")
            late += 1
    return order + [f"W{i}" for i in range(late, micro_batches)]
    ### END SOLUTION


# %% name="check_zero"
check(zero_bubble_order)

# %% name="try_zero"
zero = pipelines.read([zero_bubble_order(rank, 4, 8) for rank in range(4)], micro_batches=8, name="mine")
print(pipelines.check(zero) or pipelines.timeline(zero))
None if pipelines.check(zero) else pipelines.picture(gpipe, pipelines.timeline(zero))

# %% [markdown] name="run_task"
# ## 2. Carry it out
#
# Now write the loop. This rank's stage has one vector `weight`, and computes `output = input * weight`. `batch` and `upstream` have a row for each
# micro-batch. Only rank 0's `batch` counts: its row $i$ is the input of `F` number $i$. Only the last rank's `upstream` counts: its row $i$ is the gradient of the loss
# with respect to the output of micro-batch $i$. What the other ranks have there is of no use.
#
# - Carry out `order`, such as `["F0", "F1", "B0", "B1"]`, action by action; it may be 1F1B's, GPipe's or another one, such as `F0 F1 B1 B0`.
# - `F` sends its output to the next stage, `B` sends the gradient of its *input* to the stage before, each in a message of its own.
# - Return the gradient of `weight`, added over all micro-batches. $\partial(x w)/\partial w = x$, so keep $x$ until its `B`.
# - A send may wait until it is received. In 1F1B a rank sends forward while the next one sends back: what must not happen then?


# %% nbgrader={"grade_id": "run_pipeline", "solution": true}
def run_pipeline(batch: torch.Tensor, upstream: torch.Tensor, weight: torch.Tensor, order: list[str]) -> torch.Tensor:
    """Carries out this rank's order and returns the gradient of its weight; every rank calls it."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    kept: dict[int, torch.Tensor] = {}
    gradient = torch.zeros_like(weight)
    made, to = weight, -1  # what the last action made, and to whom it goes

    def exchange(source: int) -> torch.Tensor:
        """Sends what was made and receives what is needed in one batch, so that nobody waits for the other."""
        needed, calls = torch.empty_like(weight), []
        if 0 <= to < p:
            calls.append(dist.P2POp(dist.isend, made, to))
        if 0 <= source < p:
            calls.append(dist.P2POp(dist.irecv, needed, source))
        for work in dist.batch_isend_irecv(calls) if calls else []:
            work.wait()
        return needed

    for action in order:
        i = int(action[1:])
        if action[0] == "F":
            needed = exchange(rank - 1)
            kept[i] = needed if rank else batch[i]
            made, to = kept[i] * weight, rank + 1
        else:
            needed = exchange(rank + 1)
            of_output = needed if rank < p - 1 else upstream[i]
            gradient += kept.pop(i) * of_output
            made, to = of_output * weight, rank - 1
    exchange(-1)
    return gradient
    ### END SOLUTION


# %% name="check_run"
check(run_pipeline)

# %% [markdown] name="run_live"
# On the live world, in the order of 1F1B, against one process that has all stages:


# %% name="try_run"
def pipeline_of_ranks(orders):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same numbers on every rank, so that we can compare
    batch, upstream, weights = torch.randn(8, 4), torch.randn(8, 4), torch.rand(p, 4) + 0.5
    gradient = run_pipeline(batch, upstream, weights[rank], orders[rank])
    alone = weights.clone().requires_grad_()
    (batch * alone.prod(0) * upstream).sum().backward()
    return torch.allclose(gradient, alone.grad[rank], atol=1e-3)


orders = [pipelines.order("1f1b", rank, world.ranks, 8) for rank in range(world.ranks)]
orders = [[action.short for action in mine] for mine in orders]
results, trace = world.trace(pipeline_of_ranks, orders, deadline=20)
print("the same as alone:", all(results))
print("messages of each rank:", [sum(e.rank == r and "send" in e.op for e in trace) for r in range(world.ranks)])

# %% [markdown] name="question"
# ## 3. The last stage
#
# The last of four stages also computes the loss over 128,256 words, so its passes take twice as long as those of the others. What does this do to the
# pipeline: who waits, for about what share of the time, and does 1F1B or ZB-H1 mend it? What would you change? Two or three sentences.

# %% [markdown] nbgrader={"grade_id": "slow_stage", "grade": true, "solution": true, "points": 2}
# Every micro-batch must pass the slowest stage, so for many micro-batches the step takes as long as that stage's work alone: the other three work half of the time and wait the other half, 3/8 of
# all ranks' time. No order mends this, since orders only move waiting inside a rank's row. Give the last stage fewer layers (or split the loss over ranks), so that all stages take equally long.
# (1 point for who waits and how much, about a half each; 1 for balance instead of another order.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "zero_bubble_order-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "zero_bubble_order"}
round(6 * check(zero_bubble_order).score, 2)

# %% nbgrader={"grade_id": "run_pipeline-graded", "grade": true, "locked": true, "points": 8} allranks={"exercise": "run_pipeline"}
round(8 * check(run_pipeline).score, 2)

# %% [markdown] name="recap"
# A pipeline that turns to backward as soon as it can is as long as GPipe, but keeps at most $p$ micro-batches for any $m$. **Do first what another rank
# waits for, and do what nobody waits for when there is nothing else to do.** And the loop that carries out an order must never send first and receive later.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
