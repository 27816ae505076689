# %% [markdown] name="title"
# # Lab 3: all-reduce
#
# **Eight ranks hold one gigabyte each. How can all of them end with the sum if each sends at most 1.75 GB?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `distributed_mean` | easy | 10 | 3 |
# | `distributed_argmax` | medium | 25 | 4 |
# | `ring_all_reduce` | medium | 40 | 6 |
# | one answer in words | easy | 10 | 2 |
#
# CPU ok. The chapter *All-reduce* has the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up, any shape, any dtype that can be added, and sizes that the number of ranks does not divide.
# - Every message is counted, and a send may wait until its receiver is ready.
# - A function changes only what the task asks it to change.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check

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
# In the next cell rank $r$ holds $(r+1) \cdot [1, 2, 3]$. What will rank 1 print after the all-reduce? Write it down first.

# %% name="prediction"
prediction = [0, 0, 0]

# %% name="first_all_reduce"
# %%ranks
import torch
import torch.distributed as dist

gradient = torch.tensor([1.0, 2.0, 3.0]) * (dist.get_rank() + 1)
dist.all_reduce(gradient)
print(gradient.tolist())

# %% [markdown] name="mean_task"
# ## 1. The mean of all ranks
#
# Data-parallel training averages gradients, but `all_reduce` adds. Return the elementwise mean over the ranks, with
# **one** `all_reduce`, and don't change `tensor`: the caller may still need it. The tensors are floating or complex, and the mean has their dtype.


# %% nbgrader={"grade_id": "distributed_mean", "solution": true}
def distributed_mean(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the elementwise mean of `tensor` over all ranks, in its shape; every rank calls it."""
    ### BEGIN SOLUTION
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total / dist.get_world_size()
    ### END SOLUTION


# %% [markdown] name="mean_live"
# On the live world the mean of the numbers 0 to $p-1$ is $(p-1)/2$, on every rank (1.5 with four).


# %% name="try_mean"
def mean_of_ranks():
    return distributed_mean(torch.full((2,), float(dist.get_rank())))


world.run(mean_of_ranks, deadline=20)

# %% name="check_mean"
check(distributed_mean)

# %% [markdown] name="argmax_task"
# ## 2. Where is the largest?
#
# A language model's scores are split over the ranks, and all ranks need the best word: its value, the rank that has it, and its flat index *on that
# rank*. `all_reduce` with `MAX` gives the value, but not its place. And no rank should receive all scores: for any size of the tensors, a rank may
# receive **16 bytes from each rank**, that is one value and one index. Use collectives on tensors; messages between
# two ranks and the collectives of objects (`..._object`) are refused.
#
# Return `(value, rank, index)`, the same on every rank. Tensors of two ranks may differ in size, and none is empty. Avoid three common mistakes:
#
# - A tie goes to the lowest rank, then to the lowest index, on *every* rank: if two ranks choose different results, their programs diverge.
# - A NaN counts as the largest, as in `torch.argmax`: a function that hides it hides a bug. (What does your comparison do with NaN?)
# - An index stored in a float32 is right only up to $2^{24}$. Values and indices have their own dtypes; keep them.


# %% nbgrader={"grade_id": "distributed_argmax", "solution": true}
def distributed_argmax(tensor: torch.Tensor) -> tuple[float | int, int, int]:
    """Returns the largest value over all ranks, its rank, and its flat index there; every rank calls it."""
    ### BEGIN SOLUTION
    p = dist.get_world_size()
    flat = tensor.reshape(-1)
    index = flat.argmax().reshape(1)  # the first of equals, and a NaN before all else
    values = [torch.empty_like(flat[index]) for _ in range(p)]
    indices = [torch.empty_like(index) for _ in range(p)]
    dist.all_gather(values, flat[index])
    dist.all_gather(indices, index)
    rank = int(torch.cat(values).argmax())
    return values[rank].item(), rank, indices[rank].item()
    ### END SOLUTION


# %% name="check_argmax"
check(distributed_argmax)

# %% [markdown] name="argmax_live"
# On the live world every rank with an odd number holds a 9. **Predict** what rank 0 returns.


# %% name="try_argmax"
def argmax_of_ranks():
    scores = torch.tensor([[4.0, 7.0], [5.0, 2.0]])
    scores[1, dist.get_rank() // 2 % 2] = 9.0 if dist.get_rank() % 2 else 8.0
    return distributed_argmax(scores)


world.run(argmax_of_ranks, deadline=20)

# %% [markdown] name="ring_task"
# ## 3. The ring all-reduce
#
# If each rank sends everything to every other rank, it sends $(p-1)n$ bytes. In a ring it sends only $2\frac{p-1}{p}n$, which is the least that
# point-to-point links allow (Patarasuk & Yuan 2009).
#
# Cut the tensor into $p$ chunks with `tensor_split`. Each rank sends only to its right neighbour and receives only from its left one:
#
# 1. **Reduce-scatter**, $p-1$ steps: send a chunk, and *add* the one that arrives to your own. In the next step send the chunk to which you have just
#    added. At the end each rank has one chunk with the contributions of all ranks.
# 2. **All-gather**, $p-1$ steps: go around again, but *store* what arrives.
#
# These $2(p-1)$ steps must take $2(p-1)$ rounds: in each step every rank sends and receives at the same time. If half of the ranks send first and the
# other half later, the bytes are right, but the ring takes twice as long.

# %% [markdown] name="ring_watch"
# Step through it. Which chunk does rank 1 send in step 0, in step 1, in step 3? Find the formula before you write code.

# %% name="watch_ring"
from allranks import Player, schedules

Player(schedules.ring_all_reduce(ranks=4))

# %% [markdown] name="ring_traps"
# `check` recognizes three common mistakes:
#
# - If every rank *sends first*, each waits for a receiver that is itself still sending. Put the send and the receive of a step into one
#   `dist.batch_isend_irecv`, as in Lab 1, and `wait()` for its works before you touch the buffers.
# - A non-contiguous tensor can't be sent. Work on a contiguous copy and copy the result back.
# - With 5 elements on 3 ranks the chunks differ in length; with 2 elements on 3 ranks one is empty. You may instead pad a copy with zeros to a
#   multiple of $p$ elements: then all chunks are equally long.


# %% nbgrader={"grade_id": "ring_all_reduce", "solution": true}
def ring_all_reduce(tensor: torch.Tensor) -> None:
    """Replaces `tensor` by its sum over all ranks, in place; every rank calls it and sends 2(p-1)/p of the bytes."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(p)

    def exchange(outgoing, incoming):
        pair = [dist.P2POp(dist.isend, outgoing, right), dist.P2POp(dist.irecv, incoming, left)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    for step in range(p - 1):
        send, add = (rank - step) % p, (rank - step - 1) % p
        arrived = torch.empty_like(chunks[add])
        exchange(chunks[send], arrived)
        chunks[add].add_(arrived)
    for step in range(p - 1):
        send, store = (rank + 1 - step) % p, (rank - step) % p
        exchange(chunks[send], chunks[store])
    tensor.copy_(flat.view_as(tensor))
    ### END SOLUTION


# %% name="check_ring"
check(ring_all_reduce)


# %% [markdown] name="ring_live"
# The same function on real ranks: ten elements (with four ranks the chunks hold 3, 3, 2 and 2).


# %% name="try_ring"
def ring_of_ranks():
    mine = torch.arange(10.0) * (dist.get_rank() + 1)
    ring_all_reduce(mine)
    return mine


world.run(ring_of_ranks, deadline=8)

# %% [markdown] name="break_it"
# **Break it on purpose.** Put `dist.send` and then `dist.recv` in place of the batch and run `check` again. Which rank waits for which? Fix it.

# %% [markdown] name="why_question"
# ## 4. When not to use a ring
#
# A cluster has 512 ranks, and the latency of a message is 5 µs. You need the sum of a vector of 1 KB. How long does the ring take at least, and what
# would you use instead? Two or three sentences, with the number.

# %% [markdown] nbgrader={"grade_id": "when_not_a_ring", "grade": true, "solution": true, "points": 2}
# The ring takes 2(p-1) = 1022 steps one after the other, so at least 1022 x 5 µs = 5.1 ms, even if each carries few bytes. For such a small vector
# the bytes hardly matter, but the number of rounds does: recursive doubling needs
# lg 512 = 9 rounds of the whole vector, about 45 µs; a tree up and down needs 18. (1 point for the number, 1 for an
# algorithm with logarithmically many rounds and the reason.)

# %% [markdown] name="marking"
# ## Marking
#
# These three cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "distributed_mean-graded", "grade": true, "locked": true, "points": 3} allranks={"exercise": "distributed_mean"}
round(3 * check(distributed_mean).score, 2)

# %% nbgrader={"grade_id": "distributed_argmax-graded", "grade": true, "locked": true, "points": 4} allranks={"exercise": "distributed_argmax"}
round(4 * check(distributed_argmax).score, 2)

# %% nbgrader={"grade_id": "ring_all_reduce-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "ring_all_reduce"}
round(6 * check(ring_all_reduce).score, 2)

# %% [markdown] name="recap"
# A ring all-reduce is a reduce-scatter followed by an all-gather. It moves the fewest bytes that point-to-point links
# allow and takes $2(p-1)$ steps, so it is good for long vectors and bad for short ones. **The ring sends few bytes, but needs many steps.** The
# algorithms of the next lab need few steps, but send more bytes.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
