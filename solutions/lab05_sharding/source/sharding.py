# %% [markdown] name="title"
# # Lab 5: sharding
#
# **A model of 7 billion parameters trains with Adam, which keeps two float32 numbers for each of them: 56 GB, the same 56 GB on all 8
# GPUs. Must each GPU hold all of it? And if each holds only a part, how many more bytes must be sent?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `bruck_all_gather` | medium | 25 | 4 |
# | `ring_reduce_scatter` | medium | 30 | 5 |
# | `zero_sgd_step` | medium | 35 | 5 |
# | one answer in words | easy | 10 | 2 |
#
# CPU ok. The chapters *All-gather* and *Reduce-scatter* have the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up and for sizes that it does not divide; the first two also for empty and non-contiguous tensors and any dtype.
# - The first two are written with sends and receives, the third with `reduce_scatter` and `all_gather`.
# - Every message is counted, and a send may wait until its receiver is ready.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import Player, World, check, schedules

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU. On GPUs (NCCL) a circle of `isend`
# and `recv` can hang where it does not on the CPU (gloo): put sends and receives that belong together into one batch, `dist.batch_isend_irecv`, or
# start `World(backend="gloo")` instead.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# Rank $r$ holds $p$ numbers, one for each rank, all equal to $r+1$. What does rank 1 get from a `reduce_scatter`? And what does it get from an
# `all_gather` to which each rank gives its *first* number? Write both down first.

# %% name="prediction"
prediction = {"reduce_scatter": 0, "all_gather": []}

# %% name="first_collectives"
# %%ranks
x = torch.full((world_size,), rank + 1.0)
mine = torch.empty(1)
dist.reduce_scatter(mine, list(x.split(1)))
everyone = [torch.empty(1) for _ in range(world_size)]
dist.all_gather(everyone, x[:1])
print("reduce_scatter", mine.item(), "  all_gather", [t.item() for t in everyone])

# %% [markdown] name="first_explained"
# Reduce-scatter is an all-reduce of which each rank keeps only its own piece. All-gather adds nothing: it joins the pieces in the order of *ranks*. A
# reduce-scatter followed by an all-gather is an all-reduce.

# %% [markdown] name="gather_task"
# ## 1. All-gather in few rounds
#
# A ring needs $p-1$ rounds. Here $\lceil\lg p\rceil$ must be enough, for every $p$, and a rank must send no more than the ring does, $p-1$ tensors. So in each
# round a rank sends *all it has that the receiver lacks* in one message. In Bruck's algorithm the distance doubles; NCCL's PAT begins with the
# farthest partner and halves it. Both pass.

# %% name="watch_gather"
Player(schedules.bruck_all_gather(ranks=6), schedules.pat_all_gather(ranks=6))

# %% [markdown] name="gather_traps"
# Return one tensor: all ranks' tensors, which have the same shape, joined along the first dimension in rank order. Two questions first, for $p = 6$: how many
# tensors does a rank have before the last round, and how many of them does its receiver lack? And in which order do they stand in your buffer?


# %% nbgrader={"grade_id": "bruck_all_gather", "solution": true}
def bruck_all_gather(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensors of all ranks, joined along the first dimension in rank order; every rank calls it."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    buffer = torch.empty((p, *tensor.shape), dtype=tensor.dtype)  # place i: the tensor of rank + i
    buffer[0] = tensor
    have = 1
    while have < p:
        count = min(have, p - have)
        pair = [
            dist.P2POp(dist.isend, buffer[:count], (rank - have) % p),
            dist.P2POp(dist.irecv, buffer[have : have + count], (rank + have) % p),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        have += count
    return buffer.roll(rank, 0).flatten(0, 1)
    ### END SOLUTION


# %% name="check_gather"
check(bruck_all_gather)

# %% [markdown] name="gather_live"
# Run it on the live world, and watch your own messages.


# %% name="try_gather"
def gather_of_ranks():
    return bruck_all_gather(torch.full((2,), 10.0 * dist.get_rank()))


results, trace = world.trace(gather_of_ranks, deadline=20)
print(results[1].tolist())
Player(trace)

# %% [markdown] name="scatter_task"
# ## 2. Reduce-scatter on a ring
#
# Cut the tensor into $p$ chunks with `tensor_split`. A chunk travels around the ring, and each rank adds its contribution. The chunk must *end* on
# the rank to which it belongs: rank $r$ returns chunk $r$ of the sum, again in $p-1$ rounds. `tensor_split` cuts the first dimension: of 4 rows on 3 ranks
# the chunks have 2, 1 and 1.

# %% name="watch_scatter"
Player(schedules.ring_reduce_scatter(ranks=4))

# %% [markdown] name="scatter_hint"
# Follow chunk 0 backwards: it ends on rank 0 in the last step. Where was it in the step before, and where did it start? From this you can derive
# which chunk rank $r$ sends in step $i$. In Lab 3 the finished chunk of rank $r$ was number $r+1$; here it is number $r$. Your function must not
# change its input.


# %% nbgrader={"grade_id": "ring_reduce_scatter", "solution": true}
def ring_reduce_scatter(tensor: torch.Tensor) -> torch.Tensor:
    """Returns chunk r of `tensor.tensor_split(p)`, summed over all ranks, on rank r; sends (p-1)/p of the bytes."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    chunks = tensor.clone(memory_format=torch.contiguous_format).tensor_split(p)
    for step in range(p - 1):
        send, add = (rank - step - 1) % p, (rank - step - 2) % p
        arrived = torch.empty_like(chunks[add])
        pair = [dist.P2POp(dist.isend, chunks[send], right), dist.P2POp(dist.irecv, arrived, left)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        chunks[add].add_(arrived)
    return chunks[rank].clone()
    ### END SOLUTION


# %% name="check_scatter"
check(ring_reduce_scatter)

# %% [markdown] name="scatter_live"
# Ten numbers on your ranks (with four the chunks have 3, 3, 2 and 2).


# %% name="try_scatter"
def scatter_of_ranks():
    return ring_reduce_scatter(torch.arange(10.0) * (dist.get_rank() + 1))


results, trace = world.trace(scatter_of_ranks, deadline=20)
print([t.tolist() for t in results])
Player(trace)

# %% [markdown] name="zero_task"
# ## 3. A step of ZeRO
#
# Data-parallel training all-reduces the gradients, then every rank does the *same* update of all parameters. If the optimiser has a state, all ranks
# keep the same state. ZeRO (Rajbhandari et al., arXiv:1910.02054) lets each rank update only its shard:
#
# 1. reduce-scatter the gradients: each rank gets only the sum for its shard;
# 2. update the shard (with its share of the optimiser's state);
# 3. all-gather the new parameters. (If you gathered the updates, or the gradients, every rank would have to update everything.)
#
# We do it with plain SGD, $w \leftarrow w - \mathrm{lr} \cdot \bar g$, where $\bar g$ is the *mean* of the gradients. Put all parameters
# into one flat vector, padded with zeros to a multiple of $p$; shard $r$ is the $r$-th part. All parameters have one dtype and a `.grad`, which you
# must not change. (The parameters require grad. With `detach()` you get tensors that don't, so that you can write into their parts. Whether tensors of your
# own require grad is not judged.) A parameter may get the new values in its memory (`copy_`) or as new data (`x.data = ...`): the caller reads the
# parameter itself. Use the real `dist.reduce_scatter` and `dist.all_gather`, or their forms
# `dist.reduce_scatter_single` and `dist.all_gather_single`.
#
# **Predict**: in a plain all-reduce of $P$ numbers a rank sends about $2P$. How many does it send in these two together?


# %% nbgrader={"grade_id": "zero_sgd_step", "solution": true}
def zero_sgd_step(parameters: list[torch.nn.Parameter], lr: float) -> None:
    """Replaces each parameter by parameter - lr x the mean of its `.grad` over ranks; each rank updates its shard only."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()

    def flat_shards(tensors):
        flat = torch.cat([t.detach().flatten() for t in tensors])
        length = -(-flat.numel() // p)
        padded = torch.nn.functional.pad(flat, (0, p * length - flat.numel()))
        return list(padded.split(length))

    gradient, weights = flat_shards([x.grad for x in parameters]), flat_shards(parameters)
    total = torch.empty_like(gradient[rank])
    dist.reduce_scatter(total, gradient)
    mine = weights[rank] - lr * total / p
    dist.all_gather(weights, mine)
    new = torch.cat(weights)
    for x in parameters:
        x.data.copy_(new[: x.numel()].view_as(x))
        new = new[x.numel() :]
    ### END SOLUTION


# %% name="check_zero"
check(zero_sgd_step)

# %% [markdown] name="zero_live"
# Now train a real model on the live world: one step with your function, and one with averaged gradients and `torch.optim.SGD`. Every rank has its own
# batch. The two results should differ only by rounding.


# %% name="try_zero"
def one_step_both_ways():
    torch.manual_seed(0)
    model, twin = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    twin.load_state_dict(model.state_dict())
    torch.manual_seed(100 + dist.get_rank())
    batch = torch.randn(8, 5)
    for each in (model, twin):
        each(batch).square().mean().backward()
    zero_sgd_step(list(model.parameters()), 0.1)
    for parameter in twin.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


results, trace = world.trace(one_step_both_ways, deadline=20)
print("largest difference:", max(results))
for event in trace:
    if event.rank == 0:
        print(f"rank 0: {event.op}, {event.nbytes} bytes")

# %% [markdown] name="question"
# ## 4. What it saves, and what it costs
#
# The opening question: 7 billion parameters, Adam's two float32 numbers for each, 8 GPUs. How many GB of optimiser state does each GPU
# hold without ZeRO and with it? And how many more bytes does it *send* in a step? Two or three sentences, with numbers.

# %% [markdown] nbgrader={"grade_id": "saves_and_costs", "grade": true, "solution": true, "points": 2}
# Without: 7e9 x 8 bytes = 56 GB each. With: 56 / 8 = 7 GB each. It sends no more: a ring reduce-scatter and a ring all-gather send (p-1)/p of
# the bytes each, together 2(p-1)/p. The ring all-reduce sends the same, because it is these two one after the other. (This holds if gradients and
# parameters have the same dtype. 1 point for the two sizes, 1 for "none" with the reason.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "bruck_all_gather-graded", "grade": true, "locked": true, "points": 4} allranks={"exercise": "bruck_all_gather"}
round(4 * check(bruck_all_gather).score, 2)

# %% nbgrader={"grade_id": "ring_reduce_scatter-graded", "grade": true, "locked": true, "points": 5} allranks={"exercise": "ring_reduce_scatter"}
round(5 * check(ring_reduce_scatter).score, 2)

# %% nbgrader={"grade_id": "zero_sgd_step-graded", "grade": true, "locked": true, "points": 5} allranks={"exercise": "zero_sgd_step"}
round(5 * check(zero_sgd_step).score, 2)

# %% [markdown] name="recap"
# The two halves of a ring all-reduce are separate collectives, and each costs half. Between the two every rank has one finished shard; there each
# rank can update its shard, and no update is done twice. **Sharding the optimizer and the gradients saves memory and sends no more bytes than an all-reduce.** In the next lab you build operations
# that no library has.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
