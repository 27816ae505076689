# %% [markdown] name="title"
# # Lab 2: one root
#
# **One rank holds a 10 GB checkpoint, and 64 ranks need it. If the root sends it to each of the others, the last one gets
# it after 63 transfers. What is the smallest number?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `tree_broadcast` | medium | 25 | 4 |
# | `tree_reduce` | medium | 20 | 4 |
# | `pipelined_broadcast` | hard | 35 | 6 |
# | one answer in words | easy | 10 | 2 |
# | scatter and gather by hand | easy | 20 | none, for practice |
#
# CPU ok. The chapters *Broadcast*, *Scatter and gather* and *Reduce* have the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up, any root, any shape and any dtype. It uses sends and receives, no collectives.
# - Every message is counted, and a send may wait until its receiver is ready.
# - The *rounds* are counted too, on a clock on which every message takes one second.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import math

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
# Rank $r$ holds $r$, and rank 1 is the root: first of a broadcast, then of a reduce. What do ranks 0 and 1 print, and which of these numbers are undefined in PyTorch? Write it down first.

# %% name="prediction"
prediction = {"broadcast": [0, 0], "reduce": [0, 0]}

# %% name="first_collectives"
# %%ranks
x = torch.tensor([float(rank)])
dist.broadcast(x, 1)
y = torch.tensor([float(rank)])
dist.reduce(y, 1)
print("broadcast", x.item(), " reduce", y.item())

# %% [markdown] name="first_collectives_explained"
# After a reduce only the root's number is defined. The others may hold partial sums; that depends on the backend.

# %% [markdown] name="tree_task"
# ## 1. Broadcast down a tree
#
# Every rank that has the tensor can send it to another rank. After one round 2 ranks have it, then 4, then 8: $\lceil\lg p\rceil$ rounds in all, and
# each rank receives once. Fewer rounds are impossible, because in one round the number of ranks that have it can at most double.

# %% [markdown] name="tree_watch"
# Step through it for 8 ranks. Which rank sends to which rank in round 0, 1, 2? Which bit of the ranks' numbers differs?

# %% name="watch_tree"
Player(schedules.binomial_broadcast(ranks=8))

# %% [markdown] name="tree_hint"
# It is easiest for `src = 0`. Then let every rank use $v = (r - \text{src}) \bmod p$, its number *counted from the root*, and
# translate back when it sends. With 5 ranks some partners do not exist.


# %% nbgrader={"grade_id": "tree_broadcast", "solution": true}
def tree_broadcast(tensor: torch.Tensor, src: int) -> None:
    """Replaces `tensor` by rank src's, in place, in ceil(lg p) rounds; every rank calls it."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % p  # counted from the root
    buffer = tensor.contiguous()
    reach = 1  # so many have it
    while reach < p:
        if place < reach and place + reach < p:
            dist.send(buffer, (place + reach + src) % p)
        elif reach <= place < 2 * reach:
            dist.recv(buffer, (place - reach + src) % p)
        reach *= 2
    tensor.copy_(buffer)
    ### END SOLUTION


# %% name="check_tree"
check(tree_broadcast)

# %% [markdown] name="tree_live"
# On the live world, from rank 1. The trace holds the messages that *your* function sent; press play.


# %% name="try_tree"
def tree_of_ranks():
    mine = torch.full((4,), float(dist.get_rank()))
    tree_broadcast(mine, 1)
    return mine


results, trace = world.trace(tree_of_ranks, deadline=20)
print([t.tolist() for t in results])
Player(trace)

# %% [markdown] name="reduce_task"
# ## 2. Reduce up a tree
#
# A reduce is the reverse of the broadcast: every message goes the other way, and the receiver *adds* it. Each rank except the root sends exactly
# once, after it has received from all ranks below it. On `dst` the tensor becomes the sum; on all other ranks it must stay as it was.


# %% nbgrader={"grade_id": "tree_reduce", "solution": true}
def tree_reduce(tensor: torch.Tensor, dst: int) -> None:
    """Replaces `tensor` on rank dst by the sum over all ranks, in place; every rank calls it, ceil(lg p) rounds."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    place = (rank - dst) % p
    total = tensor.clone(memory_format=torch.contiguous_format)
    distance = 1
    while distance < p:
        if place % (2 * distance) == distance:
            dist.send(total, (place - distance + dst) % p)
            return
        if place + distance < p:
            arrived = torch.empty_like(total)
            dist.recv(arrived, (place + distance + dst) % p)
            total += arrived
        distance *= 2
    tensor.copy_(total)
    ### END SOLUTION


# %% name="check_reduce"
check(tree_reduce)

# %% [markdown] name="reduce_live"
# The sum of the $p$ ranks' numbers is $p(p-1)/2$ (6 with four ranks), on rank 1 alone.


# %% name="try_reduce"
def reduce_of_ranks():
    mine = torch.tensor([float(dist.get_rank())])
    tree_reduce(mine, 1)
    return mine.item()


world.run(reduce_of_ranks, deadline=20)

# %% [markdown] name="pipeline_task"
# ## 3. Broadcast down a pipeline
#
# A tree has few rounds, but in each of them the *whole* tensor is sent: $\lceil\lg p\rceil(\alpha+n\beta)$. For a long tensor this is $\lg p$ times
# the $n\beta$ that a rank needs to receive it once.
#
# So put the ranks in a chain, src, src+1, src+2 and so on, and cut the tensor into $k$ segments with `tensor_split`. Each rank sends segment $i$ on *while*
# it receives segment $i+1$. The first segment reaches the end after $p-1$ steps, the other $k-1$ follow one
# step apart:
#
# $$T = (p+k-2)\left(\alpha+\frac{n}{k}\beta\right)$$

# %% name="watch_pipeline"
Player(schedules.pipelined_chain_broadcast(ranks=4, segments=4))

# %% [markdown] name="pipeline_trap"
# A common mistake: `recv`, then `send`, then `recv` again takes twice as long, because a rank can't receive while it waits in `send`. Send segment $i$
# and receive segment $i+1$ in one batch. `check` runs your function on a clock with $\alpha$ and $\beta$ and allows 10 % more than the formula.


# %% nbgrader={"grade_id": "pipelined_broadcast", "solution": true}
def pipelined_broadcast(tensor: torch.Tensor, src: int, segments: int) -> None:
    """Replaces `tensor` by rank src's, in place, along a chain, `segments` pieces one after the other."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    place = (rank - src) % p
    flat = tensor.contiguous().view(-1)
    parts = flat.tensor_split(segments)
    for i in range(-1, segments):
        both = []
        if place < p - 1 and i >= 0:
            both.append(dist.P2POp(dist.isend, parts[i], (rank + 1) % p))
        if place > 0 and i + 1 < segments:
            both.append(dist.P2POp(dist.irecv, parts[i + 1], (rank - 1) % p))
        for work in dist.batch_isend_irecv(both) if both else []:
            work.wait()
    tensor.copy_(flat.view_as(tensor))
    ### END SOLUTION


# %% name="check_pipeline"
check(pipelined_broadcast)

# %% [markdown] name="pipeline_live"
# Try it on the live world, with eight numbers in four segments.


# %% name="try_pipeline"
def pipeline_of_ranks():
    mine = torch.arange(8.0) * (dist.get_rank() == 0)
    pipelined_broadcast(mine, 0, 4)
    return mine


results, trace = world.trace(pipeline_of_ranks, deadline=20)
print([t.tolist() for t in results])
Player(trace)

# %% [markdown] name="pipeline_cost"
# How many segments are best? Predict the shape of the curve: $k = 1$ is a slow chain, and with $k = n$ every byte pays $\alpha$.

# %% name="segments"
alpha, beta, p, n = 5e-6, 1 / 25e9, 64, 10**10
for k in (1, 10, 100, 1000, 10**4, 10**5, 10**6):
    print(f"k = {k:7}: {(p + k - 2) * (alpha + n / k * beta):7.3f} s")
print(f"the tree:    {math.ceil(math.log2(p)) * (alpha + n * beta):7.3f} s")

# %% [markdown] name="pieces_task"
# ## 4. For practice: scatter and gather by hand
#
# This gives no points. In `scatter` the root holds a list with one tensor for each rank, and each rank gets its tensor. `gather` is the reverse. A
# flat algorithm with $p-1$ messages is enough here. All pieces have the shape of `like`, which every rank knows.


# %% nbgrader={"grade_id": "scatter_by_hand", "solution": true}
def scatter_by_hand(pieces: list[torch.Tensor] | None, like: torch.Tensor, src: int) -> torch.Tensor:
    """Returns pieces[r] of rank src on rank r; pieces is None on the others."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank == src:
        sends = [dist.P2POp(dist.isend, pieces[r], r) for r in range(p) if r != src]
        for work in dist.batch_isend_irecv(sends) if sends else []:
            work.wait()
        return pieces[src].clone()
    mine = torch.empty_like(like)
    dist.recv(mine, src)
    return mine
    ### END SOLUTION


# %% nbgrader={"grade_id": "gather_by_hand", "solution": true}
def gather_by_hand(tensor: torch.Tensor, dst: int) -> list[torch.Tensor] | None:
    """Returns the tensors of all ranks, in rank order, on rank dst; None on the others."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank != dst:
        dist.send(tensor, dst)
        return None
    collected = [tensor.clone() if r == dst else torch.empty_like(tensor) for r in range(p)]
    for r in range(p):
        if r != dst:
            dist.recv(collected[r], r)
    return collected
    ### END SOLUTION


# %% [markdown] name="pieces_live"
# The root scatters [0, 0], [1, 1], [2, 2] and so on, one to each rank; each rank doubles its piece; the root gathers. Compare with torch's own scatter and gather.


# %% name="try_pieces"
def there_and_back():
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces = [torch.full((2,), float(r)) for r in range(p)] if rank == 0 else None
    mine = 2 * scatter_by_hand(pieces, torch.empty(2), 0)
    ours = gather_by_hand(mine, 0)
    theirs = [torch.empty(2) for _ in range(p)] if rank == 0 else None
    dist.gather(mine, theirs, 0)
    return (ours, theirs) if rank == 0 else ours


ours, theirs = world.run(there_and_back)[0]
print([t.tolist() for t in ours])
print("the same as dist.gather:", all(map(torch.equal, ours, theirs)))

# %% [markdown] name="question"
# ## 5. Tree or pipeline?
#
# There are 64 ranks, with $\alpha$ = 5 µs and $1/\beta$ = 25 GB/s. They need a learning rate of 4 bytes at every step, and a checkpoint of 10 GB at
# the start. Which of your two broadcasts is better for which, and how long does each take? Two or three sentences, with numbers.

# %% [markdown] nbgrader={"grade_id": "tree_or_pipeline", "grade": true, "solution": true, "points": 2}
# The learning rate goes down the tree: 6 rounds of 5 µs, 30 µs, while a chain would need 63 of them, 315 µs, with any number of segments. The
# checkpoint goes down the pipeline: with 1000 segments about 0.43 s, near the 0.4 s that its bytes alone take; the tree needs 6 x 0.4 = 2.4 s. (1
# point for the right choice with a reason, 1 for the numbers.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "tree_broadcast-graded", "grade": true, "locked": true, "points": 4} allranks={"exercise": "tree_broadcast"}
round(4 * check(tree_broadcast).score, 2)

# %% nbgrader={"grade_id": "tree_reduce-graded", "grade": true, "locked": true, "points": 4} allranks={"exercise": "tree_reduce"}
round(4 * check(tree_reduce).score, 2)

# %% nbgrader={"grade_id": "pipelined_broadcast-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "pipelined_broadcast"}
round(6 * check(pipelined_broadcast).score, 2)

# %% [markdown] name="recap"
# A tree takes the fewest rounds and sends the whole tensor in each of them; a pipeline takes many steps with small pieces and keeps every link busy.
# A reduce is a broadcast with all messages reversed, and each receiver adds. **For short tensors count the rounds, for long ones the bytes.** In the next lab *every*
# rank needs the sum.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
