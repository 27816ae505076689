# %% [markdown] name="title"
# # Lab 7: all-to-all
#
# **Every rank has different data for every other rank: words for the GPU that holds their embedding, tokens for the GPU that holds their expert. How
# do the data get there and back again, in the right order, if no rank knows beforehand how much it will receive?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `pairwise_all_to_all` | medium | 25 | 4 |
# | `embedding_lookup` | hard | 40 | 6 |
# | `moe_dispatch_combine` | hard | 40 | 6 |
# | one answer in words | medium | 10 | 2 |
#
# CPU ok. The chapter *All-to-all* has the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up, for pieces of different sizes and empty ones, any dtype, and tensors that aren't contiguous.
# - The first is written with sends and receives, the two others with `all_to_all` or `all_to_all_single`. (On gloo, and so in the marking, the lists of `all_to_all` hold tensors of one size; `all_to_all_single` takes parts of any sizes.)
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
# Rank $r$ holds $[10r, 10r+1, 10r+2, \dots]$, one number for each rank, and all ranks exchange them. What does rank 1 print? Write it down first. (Write
# the ranks' lists under each other: you know this operation by another name.)

# %% name="prediction"
prediction = []

# %% name="first_all_to_all"
# %%ranks
x = torch.arange(float(world_size)) + 10 * rank
y = torch.empty_like(x)
dist.all_to_all_single(y, x)
print(y.tolist())

# %% [markdown] name="pairwise_task"
# ## 1. All-to-all, pair by pair
#
# `chunks[i]` goes to rank $i$. Return the list of the tensors that arrived: entry $q$ is the tensor that rank $q$ had for you, also if $q$ is your own rank. Chunks
# for different ranks may differ in shape, but all that *you* receive has the shape of your own `chunks[rank]`.
#
# Each rank sends once to each other rank. In step $i$ you send to rank $r+i$: which rank sends to you? Several pairs must be under way at once: all
# of it may take $4(p-1)$ rounds at most.

# %% name="watch_pairwise"
Player(schedules.pairwise_all_to_all(ranks=5))

# %% [markdown] name="pairwise_trap"
# If all ranks send to the *same* rank first, that rank's link is the bottleneck while the other links are idle. And if all ranks send before they receive, there is a deadlock: a send and a receive belong into one batch.


# %% nbgrader={"grade_id": "pairwise_all_to_all", "solution": true}
def pairwise_all_to_all(chunks: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns what each rank had for this one, in rank order; chunks[i] goes to rank i; every rank calls it."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = chunks[rank].contiguous()
    received = [mine.clone() if q == rank else torch.empty_like(mine) for q in range(p)]
    for step in range(1, p):
        target, source = (rank + step) % p, (rank - step) % p
        outgoing = chunks[target].contiguous()
        pair = [dist.P2POp(dist.isend, outgoing, target), dist.P2POp(dist.irecv, received[source], source)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
    return received
    ### END SOLUTION


# %% name="check_pairwise"
check(pairwise_all_to_all)

# %% [markdown] name="pairwise_live"
# Run it on the live world, where rank $r$ gets $r+1$ numbers from every rank. Watch your own messages.


# %% name="try_pairwise"
def pairwise_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    return pairwise_all_to_all([torch.full((to + 1,), 10.0 * rank + to) for to in range(p)])


results, trace = world.trace(pairwise_of_ranks, deadline=20)
print("rank 1 has", [t.tolist() for t in results[1]])
Player(trace)

# %% [markdown] name="lookup_task"
# ## 2. Look up rows of a split table
#
# A recommender's table of embeddings is too large for one GPU, so its rows are split: rank $r$ holds the rows from $r s$ to $(r+1)s-1$,
# where $s$ is the length of `shard`. Return the rows for `ids`, in the order of `ids`. Ids may repeat, and a rank may ask for none.
#
# Use only `all_to_all` or `all_to_all_single`, and no rank may receive a row twice. There are three rounds:
#
# 1. **Counts.** Send each rank the number of ids that you will ask it for: one number for each rank.
# 2. **Ids.** Send the ids, sorted by owner. Now the lengths are known: `all_to_all_single(output, input, output_sizes, input_sizes)`.
# 3. **Rows.** Send the rows back, with the two lists of sizes exchanged.

# %% [markdown] name="lookup_traps"
# `torch.unique(ids, return_inverse=True)` does two things: it sorts, and it returns the new place of each id. Inside a shard a row's place is `id % s`.


# %% nbgrader={"grade_id": "embedding_lookup", "solution": true}
def embedding_lookup(ids: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
    """Returns the rows of the table for `ids` (n,), in their order; `shard` (s, width) holds this rank's rows."""
    ### BEGIN SOLUTION
    p, s = dist.get_world_size(), len(shard)
    wanted, place = torch.unique(ids, return_inverse=True)  # sorted, so sorted by owner
    ask = torch.bincount(wanted // s, minlength=p)
    give = torch.empty_like(ask)
    dist.all_to_all_single(give, ask)
    ask, give = ask.tolist(), give.tolist()

    asked = torch.empty(sum(give), dtype=wanted.dtype, device=wanted.device)
    dist.all_to_all_single(asked, wanted, give, ask)
    rows = torch.empty(len(wanted), shard.shape[1], dtype=shard.dtype, device=shard.device)
    dist.all_to_all_single(rows, shard[asked % s], ask, give)
    return rows[place]
    ### END SOLUTION


# %% name="check_lookup"
check(embedding_lookup)

# %% [markdown] name="lookup_live"
# Run it on the live world: row $i$ of a table is $[i, 100+i]$, and each rank has five rows, so with $p$ ranks the table has $5p$. Rank 0 asks for four
# rows, one of them twice (with four ranks 17, 3, 17, 8).


# %% name="try_lookup"
def lookup_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    rows = torch.arange(5.0) + 5 * rank
    ids = torch.tensor([5 * p - 3, 3, 5 * p - 3, 8]) if rank == 0 else torch.tensor([rank])
    return embedding_lookup(ids, torch.stack([rows, 100 + rows], dim=1))


results, trace = world.trace(lookup_of_ranks, deadline=20)
print(results[0].tolist())
for event in trace:
    if event.rank == 0:
        print(f"rank 0: {event.op}, {event.nbytes} bytes")

# %% [markdown] name="moe_task"
# ## 3. A mixture of experts
#
# Rank $r$ has expert $r$. `experts[i]` says which expert token $i$ needs. Send each token there, apply `expert_fn`, which is *this* rank's expert and
# takes a batch of tokens, and send the results back: `result[i]` belongs to `tokens[i]`.
#
# The rounds are those of the lookup, but now the tokens are sent, twice. Sort the tokens by expert with `torch.argsort(..., stable=True)`. A common
# mistake is on the way back: the results arrive in sorted order. Which line undoes a sort?
#
# No token may go to another rank than that of its expert. You may pad with zeros, up to the number of tokens that one rank has for the fullest expert,
# but `all_to_all_single` with lists of sizes needs no padding. Six calls are enough for any number of tokens.
#
# **Predict**: what happens on a rank that receives no token? Must it call anything?


# %% nbgrader={"grade_id": "moe_dispatch_combine", "solution": true}
def moe_dispatch_combine(tokens: torch.Tensor, experts: torch.Tensor, expert_fn) -> torch.Tensor:
    """Returns each token (n, width) as the expert of its rank makes it, in the order of `tokens`; every rank calls it."""
    ### BEGIN SOLUTION
    p = dist.get_world_size()
    order = torch.argsort(experts, stable=True)
    there = torch.bincount(experts, minlength=p)
    here = torch.empty_like(there)
    dist.all_to_all_single(here, there)
    there, here = there.tolist(), here.tolist()

    visitors = torch.empty(sum(here), tokens.shape[1], dtype=tokens.dtype, device=tokens.device)
    dist.all_to_all_single(visitors, tokens[order], here, there)
    back = torch.empty(tokens.shape, dtype=tokens.dtype, device=tokens.device)
    dist.all_to_all_single(back, expert_fn(visitors).contiguous(), there, here)
    result = torch.empty_like(back)
    result[order] = back
    return result
    ### END SOLUTION


# %% name="check_moe"
check(moe_dispatch_combine)

# %% [markdown] name="moe_live"
# On the live world expert $r$ adds $1000r$. Every rank has four tokens; token $i$ needs expert $i^2 \bmod p$, so with more than two ranks some experts get
# no tokens (with four ranks experts 2 and 3).


# %% name="try_moe"
def moe_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    tokens = (torch.arange(4.0) + 10 * rank)[:, None]
    made = moe_dispatch_combine(tokens, torch.arange(4) ** 2 % p, lambda batch: batch + 1000 * rank)
    return made.flatten().tolist()


results, trace = world.trace(moe_of_ranks, deadline=20)
for rank, made in enumerate(results):
    mine = [event.nbytes for event in trace if event.rank == rank]
    print(f"rank {rank}: {made}, bytes put into each call: {mine}")

# %% [markdown] name="question"
# ## 4. The popular expert
#
# There are 8 ranks with 4096 tokens each, a token is 7168 numbers of bfloat16, and here each token needs one expert. How many bytes does each rank
# send to *other* ranks for the dispatch, if the tokens are distributed evenly? And what happens if half of all tokens need expert 0? Two
# or three sentences, with numbers.

# %% [markdown] nbgrader={"grade_id": "popular_expert", "grade": true, "solution": true, "points": 2}
# Evenly: 7/8 of 4096 x 7168 x 2 bytes = 58.7 MB, so each rank sends 51 MB and receives as much. If half of all tokens need expert 0, each of the
# other ranks still sends about as much, but rank 0 receives 7 x 2048 tokens = 205 MB, four times as much as before. It also computes 4 times its
# share, and the others wait for it: an all-to-all ends when its busiest link is done. (1 point for 51 MB, 1 for rank 0 as the
# bottleneck with a number, in bytes or in tokens.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "pairwise_all_to_all-graded", "grade": true, "locked": true, "points": 4} allranks={"exercise": "pairwise_all_to_all"}
round(4 * check(pairwise_all_to_all).score, 2)

# %% nbgrader={"grade_id": "embedding_lookup-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "embedding_lookup"}
round(6 * check(embedding_lookup).score, 2)

# %% nbgrader={"grade_id": "moe_dispatch_combine-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "moe_dispatch_combine"}
round(6 * check(moe_dispatch_combine).score, 2)

# %% [markdown] name="recap"
# An all-to-all is a transposition: rank $r$'s row becomes column $r$. If sizes differ, first a small all-to-all exchanges the *counts*; the way back
# is the same call with the sizes exchanged. **Exchange the counts first, then the data.** In the next lab you use collectives in a training step.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
